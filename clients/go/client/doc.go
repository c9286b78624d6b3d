// Package client is the Go client of /api. It has typed calls, errors with the codes of the key server, and a session
// that opens and renews itself. It retries only if the key server said that a retry may help, or if the request cannot
// have reached the key server.
//
// Each route has a method named after its operationId, spelled as in Go; hack/client
// generates these methods from the routes. Only methods that do more than one request and
// response are written by hand: login, logout and streaming.
//
// The client works with any key server that implements docs/contract.md. A call that such a key server does not have
// fails with an error for which IsUnsupported is true.
package client
