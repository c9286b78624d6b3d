// Package reconcile makes key servers agree with the declarations of objects
// of all kinds. It reports success only after it has read the result back.
//
// One generic reconciler (reconciler.go) serves every kind. One run of it for one object is a pass. A pass gathers
// facts (facts.go) and chooses one action by rules that are pure functions (rules.go). It acts through the verified
// writes of /api and records the outcome with one status patch. An Adapter (adapter.go) has the code that differs
// between kinds. The adapter also reports what blocks actions on its external objects (blocker.go).
//
// Kinds declare which other kinds they need (dependency.go). If a needed object changes, the objects that need it are
// reconciled. An object is not deleted while another object needs it. Cache indexes (wakeup.go) find the objects that a
// change of the key server concerns.
//
// A plan (intent.go) is a pass without writes that returns its decision.
package reconcile
