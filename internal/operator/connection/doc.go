// Package connection connects the operator to key servers.
//
// All objects of one KeyServer share one connection (connection.go). While the key server does not respond, the
// connection is closed: it sends no requests except probes. It caches lists (Listing) and single responses (Memo). The
// change feed keeps these caches current and says which objects a change concerns.
//
// problem.go converts error codes of the key server to reasons of conditions. The package does not know objects or
// kinds. The listeners of notices find the objects that a notice concerns.
package connection
