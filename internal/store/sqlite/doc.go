// Package sqlite keeps a database in a directory that one process holds: it opens and creates the
// file, reads the write-ahead log for replication, and has the files of a restore and of a move.
//
// Of the tables of nouns, it knows only stored_keys (SetKeyMACs, SetKeyWraps).
//
// May import: internal/store/sqldb, internal/audit/journal, internal/keyserver,
// internal/platform, and the leaves below internal/store/sqlstore
package sqlite
