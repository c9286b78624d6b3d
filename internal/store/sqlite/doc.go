// Package sqlite stores a database in a directory that one process locks. It opens and creates the
// file, reads the write-ahead log for replication, and manages the files of a restore and of a move.
//
// Of the tables of objects, it uses only stored_keys (SetKeyMACs, SetKeyWraps).
//
// May import: internal/store/sqldb, internal/audit/journal, internal/keyserver,
// internal/platform, and the leaves below internal/store/sqlstore
package sqlite
