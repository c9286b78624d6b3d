// Package connection is how the operator reaches key servers.
//
// All objects of one KeyServer share one connection (connection.go): its gate,
// through which nothing passes while the service does not answer, its listings
// and memos, which hold what the service has said (listing.go, memo.go), and the
// change feed, which keeps those current and says whom a change concerns.
//
// What the service refuses becomes a reason of the resources in problem.go. The
// package knows no object and no kind: whoever is told of a notice does.
package connection
