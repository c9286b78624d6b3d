// Package auditrows keeps the audit log in a database. Rows of SQLite are durable in a journal
// before they are in their tables; replicas on PostgreSQL each write a chain in one sequence.
//
// It also has the queries of the log with the blocks that speed them up, the tree, the cursors of
// sinks, and the uses of keys, which are counted with their rows.
//
// May import: internal/store/sqldb, internal/store/sqlite, internal/store/postgres,
// internal/audit, internal/keyserver, internal/platform, and the leaves below internal/store/sqlstore
package auditrows
