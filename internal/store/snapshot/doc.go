// Package snapshot copies a database as it is at one moment, table by table, and makes another one
// from such a copy. Both kinds of database write and read the same rows (pgcopy).
//
// Package backup defines the format of backups and encrypts them.
//
// May import: internal/store/sqldb, internal/store/sqlite, internal/store/postgres,
// internal/store/auditrows, internal/audit, internal/keyserver, internal/platform, and the leaves
// below internal/store/sqlstore
package snapshot
