// Package store has no code. Its directories keep the state of a key server:
//
//   - sqlstore: the only package outside tests with SQL: queries, migrations, SQLite and PostgreSQL, snapshots
//   - backup: encrypted backups, restore, and copies of the SQLite log
//   - pgtest: the PostgreSQL of tests
//
// Rules about rights are in internal/engine.
//
// May import: internal/audit, internal/crypto, internal/keyserver, internal/platform
package store
