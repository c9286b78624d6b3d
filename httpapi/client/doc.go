// Package client is the Go client of /api: typed calls, failures typed by
// their code, a session that opens and renews itself, and retries only where
// the service said that a retry may help or where nothing can have reached it.
//
// Each route has a method that is named after its operationId, in the spelling
// of Go; hack/client makes them from the routes. By hand are only those that do
// more than one request and its answer: logging in and out, and streaming.
//
// It works against any service that honours docs/contract.md. A call that such a
// service does not have fails with an error for which IsUnsupported is true.
package client
