// Package ctl is the command line for people: every route of /api as a verb. The
// verbs are made from the table of routes and its OpenAPI document, and nothing is
// written for one route: what stands in names.go, data that a rule would get wrong, is
// all that names any. Which session a verb uses is login.go's, where it is kept
// store.go's.
package ctl
