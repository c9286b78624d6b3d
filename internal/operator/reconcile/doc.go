// Package reconcile makes key servers agree with the declarations of objects
// of all kinds. It reports success only after it has read the result back.
//
// One generic reconciler (reconciler.go) serves every kind. One run of it for one object is a pass. A pass gathers
// facts (facts.go) and asks the pure rules (rules.go) for one action. It acts through the verified writes of /api and
// records the outcome with one status patch. An Adapter (adapter.go) has the code that differs between kinds. The
// adapter also reports what blocks actions on its external objects (blocker.go).
//
// Kinds declare which other kinds they need (dependency.go). A change of a needed object wakes the objects that need
// it. An object is not deleted while others need it. Indexes of the cache (wakeup.go) find the objects that a change of
// the key server concerns.
//
// A plan (intent.go) is a normal pass that also returns what it has decided.
package reconcile
