// Package ctl is the command-line client for users. Every route of /api is a verb. The verbs are made from the table of
// routes and the OpenAPI document, without code for single routes. Only names.go lists single routes: those for which
// the general rule gives a wrong name. Package login stores the sessions. Package cmdline has the exit codes.
package ctl
