// Package snapshot makes a consistent copy of a database, table by table, and creates a database
// from such a copy. The format of the rows is the same for SQLite and PostgreSQL (pgcopy).
//
// Package backup defines the format of backups and encrypts them.
//
// May import: internal/store/sqldb, internal/store/sqlite, internal/store/postgres,
// internal/store/auditrows, internal/audit, internal/keyserver, internal/platform, and the leaves
// below internal/store/sqlstore
package snapshot
