// Package httpapi serves /api: it decodes a request, calls the operation and encodes the response. Package routes has
// the table of routes and the status of each fault code. Package operations has the handlers that only call an
// operation; handlers.go adds those of this package, and exchange.go runs them. Checks that depend on the state of the
// key server belong to package verified.
package httpapi
