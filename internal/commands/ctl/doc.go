// Package ctl is the command-line client for people: every route of /api is a verb. It makes the verbs from the
// table of routes and its OpenAPI document and has no code for a single route. Only the data in names.go names
// routes; it has the names that a rule would get wrong. Package login keeps the session that a verb uses, and
// package cmdline has the exit codes.
package ctl
