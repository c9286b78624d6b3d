// Package routes contains the table of all routes of /api: method, path, operations, limits, faults, and the types of
// request and response. It also decodes requests by the table and creates the OpenAPI document from it. The key
// server's handlers are in package httpapi; the command line and the agent use the table without the handlers.
package routes
