-- +goose Up

PRAGMA user_version = 29;

-- How far the tree over the rows of the audit trail has grown. There is one row.
CREATE TABLE audit_tree (
	name       TEXT    NOT NULL PRIMARY KEY,
	size       INTEGER NOT NULL,
	root       BLOB    NOT NULL,
	at         INTEGER NOT NULL,
	checkpoint BLOB    NOT NULL
) STRICT, WITHOUT ROWID;

-- Its hashes, up to 256 of a level in a row.
CREATE TABLE audit_tiles (
	level  INTEGER NOT NULL,
	place  INTEGER NOT NULL,
	hashes BLOB    NOT NULL,
	PRIMARY KEY (level, place)
) STRICT;
