// Package ctl is the command-line client for people. Every route of /api is a verb. The verbs are made from the table
// of routes and the OpenAPI document, without code for single routes. Only the data in names.go names routes, for which
// the general rule gives a wrong name. Package login stores the sessions. Package cmdline has the exit codes.
package ctl
