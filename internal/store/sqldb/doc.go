// Package sqldb is the base of all queries of a key server: the handle of an open database, write
// transactions, conversion of columns, MACs of rows, migrations and the check of the schema.
//
// Packages without SQL use a Handle. A DB adds the statements. Packages sqlite and postgres
// implement Dialect, the operations that differ between the databases.
//
// May import: internal/crypto, internal/keyserver, internal/platform, and the leaves below
// internal/store/sqlstore
package sqldb
