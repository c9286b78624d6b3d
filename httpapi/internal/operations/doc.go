// Package operations contains the handlers of the routes that only call an operation of the key server: each handler
// converts a decoded request, calls the operation for the caller, and converts the result. Handlers maps the name of
// each route to its handler.
//
// Package httpapi decodes the request, finds the caller and sends the response. Package httpapi also contains the
// handlers that need more than that: those of sessions, approvals, streamed bodies and readiness, and GET /api/audit.
//
// The package may import routes, schema and wire of httpapi, the operations (internal/engine/verified) and their types.
// It does not depend on connections, sessions or approvals.
package operations
