// Package httpapi is /api: it decodes a request, calls the operation and
// encodes the answer. Routes are data (routes.go), one generic helper runs
// them (route.go, exchange.go), and one table turns a coded fault into a
// status (status.go). Policy lives elsewhere: a refusal that needs the state
// of the key server belongs to package verified.
package httpapi
