// Package postgres connects to a PostgreSQL database that replicas share: it chooses among several
// hosts, detects changes by other replicas and failovers, renews sessions, and holds locks.
//
// Of the tables of objects, it uses only stored_keys (SetKeyMACs, SetKeyWraps).
//
// May import: internal/store/sqldb, internal/crypto/rowmac, internal/keyserver, and the leaves
// below internal/store/sqlstore
package postgres
