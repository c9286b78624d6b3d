// Package store has no code. Its directories keep the state of a key server:
//
//   - sqlstore: queries for keys, principals, roles and other objects; cache: rows in memory until they change
//   - sessionrows: sessions; trustrows: CAs, certificates and peers; auditrows: the audit log
//   - snapshot: copies of a database, and databases made from them
//   - sqlite, postgres: the two kinds of database; sqldb: statements, transactions and migrations of both
//   - backup: encrypted backups, restore, and replication of SQLite; pgtest: PostgreSQL servers for tests
//
// Rules about rights are in internal/engine.
//
// May import: clients/go/shared, internal/audit, internal/crypto, internal/keyserver, internal/platform
package store
