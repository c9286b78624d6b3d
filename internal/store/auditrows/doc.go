// Package auditrows stores the audit log in a database. With SQLite, rows are durable in a journal
// before they are in the tables. On PostgreSQL, each replica writes its own chain: each row has the
// hash of the row before it in the chain. One sequence numbers the rows of all chains.
//
// The package also has the queries of the log, the blocks that index the rows, the audit tree, the
// state of audit sinks, and the number of uses of each key.
//
// May import: internal/store/sqldb, internal/store/sqlite, internal/store/postgres,
// internal/audit, internal/keyserver, internal/platform, and the leaves below internal/store/sqlstore
package auditrows
