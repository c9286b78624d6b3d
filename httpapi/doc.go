// Package httpapi serves /api: it decodes a request, calls the operation and encodes the response. Package routes has
// the table of routes and the status of each fault code; handlers.go has the handler of each route, and exchange.go
// runs it. A refusal that depends on the state of the key server belongs to package verified.
package httpapi
