// Package postgres connects to a PostgreSQL database that replicas share: it chooses among several
// hosts, follows the changes of other replicas and a failover, renews sessions, and holds locks.
//
// Of the tables of nouns, it knows only stored_keys (SetKeyMACs, SetKeyWraps).
//
// May import: internal/store/sqldb, internal/crypto/rowmac, internal/keyserver, and the leaves
// below internal/store/sqlstore
package postgres
