// Package sqldb is the base of all queries of a key server: the handle of an open database, write
// transactions, conversion of columns, MACs of rows, migrations and the check of the schema.
//
// Packages without SQL use a Handle; a DB adds the statements. Dialect has the differences
// between the databases; packages sqlite and postgres implement it.
//
// May import: internal/crypto, internal/keyserver, internal/platform, and the leaves below
// internal/store/sqlstore
package sqldb
