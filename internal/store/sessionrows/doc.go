// Package sessionrows stores sessions in a database, and the token buckets and known origins that
// limit logins.
//
// Ending a session also ends the sessions that were made from it. Package internal/auth/session
// has the rules for new sessions.
//
// May import: internal/store/sqldb, internal/crypto/rowmac, internal/keyserver, internal/platform
package sessionrows
