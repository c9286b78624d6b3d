// Package connection connects the operator to key servers.
//
// All objects of one KeyServer share one connection (connection.go). It has a gate, which stops all
// requests except probes while the service does not respond. Its listings and memos cache responses
// (listing.go, memo.go). The change feed keeps them current and says which objects a change concerns.
//
// problem.go converts refusals of the service to reasons of the resources.
// The package knows no object and no kind; the listeners of notices do.
package connection
