// Package sessionrows keeps sessions in a database, and the throttle of logins: token buckets and
// known origins.
//
// Ending a session also ends the sessions that were made from it. Package internal/auth/session
// has the rules for opening one.
//
// May import: internal/store/sqldb, internal/crypto/rowmac, internal/keyserver, internal/platform
package sessionrows
