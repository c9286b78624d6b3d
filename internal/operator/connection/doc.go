// Package connection connects the operator to key servers.
//
// All objects of one KeyServer share one connection (connection.go). While the service does not respond, the connection
// is closed: it sends no requests except probes. Its listings and memos cache responses (listing.go, memo.go). The
// change feed keeps these caches current and says which objects a change concerns.
//
// problem.go converts error codes of the service to reasons of conditions. The package does not know objects or kinds.
// The listeners of notices find the objects that a notice concerns.
package connection
