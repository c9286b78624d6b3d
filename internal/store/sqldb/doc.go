// Package sqldb is what the queries of a key server run on: the handle of an open database, write
// transactions, the forms of columns, the MACs of rows, migrations and the check of the schema.
//
// A Handle is what callers see that know no SQL, a DB adds the statements. Dialect has the
// differences between the databases; packages sqlite and postgres implement it.
//
// May import: internal/crypto, internal/keyserver, internal/platform, and the leaves below
// internal/store/sqlstore
package sqldb
