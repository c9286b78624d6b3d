// Package reconcile makes key servers agree with what objects declare, whatever
// their kind, and says so only after a re-read.
//
// One generic reconciler (reconciler.go) serves every kind. It gathers facts
// (facts.go), asks the pure rules (rules.go) for one action, acts through the
// verified writes of /api, and records the outcome with one status patch. What
// differs from kind to kind is an Adapter (adapter.go), which also says what
// stands in the way of an external object of its kind (hindrance.go).
//
// Kinds that need others say so (dependency.go): their objects are woken when
// those change, and those are not deleted under them. Whom a change of the key
// server concerns is found by indexes of the cache (wakeup.go).
//
// A plan (intent.go) is a pass like any other, asked what it has decided.
package reconcile
