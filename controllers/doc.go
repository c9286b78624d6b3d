// Package controllers makes key servers agree with what the custom resources
// declare, and says so only after a re-read.
//
// One generic reconciler (reconciler.go) serves every kind. It gathers facts,
// asks the pure rules of decide.go for one action, acts through the verified
// writes of /api, and records the outcome with one status patch. What differs
// from kind to kind is an adapter, in a file that is named after the kind. A new
// kind is one more such file and one line in setup.go.
//
// Kinds that need others say so (dependency.go): their objects are woken when
// those change, and those are not deleted under them.
//
// All objects of one KeyServer share one connection (connection.go): its
// gate, through which nothing passes while the service does not answer, its
// listings, which hold what the service lists (listing.go), and the change
// feed, which keeps those current and wakes the objects concerned.
package controllers
