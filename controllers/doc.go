// Package controllers makes key servers agree with what the custom resources
// declare, and says so only after a re-read.
//
// One generic reconciler (reconciler.go) serves every kind but KeyServer, which
// has its own. It gathers facts, asks the pure rules of decide.go for one action,
// acts through the verified writes of /api, and records the outcome with one
// status patch. What differs from kind to kind is an adapter, in a file that is
// named after the kind. What one kind alone has to say to the rules, for instance
// what its deletion takes with it, is a field of external (decide.go): a new kind
// is one more adapter, its line in setup.go, its calls in api.go, its name in the
// marker for definitions in keyserver.go, and such fields where it needs any.
//
// Kinds that need others say so (dependency.go): their objects are woken when
// those change, and those are not deleted under them.
//
// All objects of one KeyServer share one connection (connection.go): its
// gate, through which nothing passes while the service does not answer, its
// listings, which hold what the service lists (listing.go), and the change
// feed, which keeps those current and wakes the objects concerned.
package controllers
