// Package sessionrows keeps sessions in a database, and what throttles logins: buckets of tokens
// and known origins.
//
// Ending a session also ends the sessions that were made from it. The rules about who may open
// one are in internal/auth/session.
//
// May import: internal/store/sqldb, internal/crypto/rowmac, internal/keyserver, internal/platform
package sessionrows
