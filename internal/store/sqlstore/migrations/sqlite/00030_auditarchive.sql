-- +goose Up

PRAGMA user_version = 30;

-- What of the trail is where: its first row here, and the last one that the archive
-- has. There is one row.
CREATE TABLE audit_extent (
	name     TEXT NOT NULL PRIMARY KEY,
	first    INTEGER NOT NULL,
	archived INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO audit_extent (name, first, archived) VALUES ('trail', 1, 0);

-- Where each chain stands before that first row.
CREATE TABLE audit_cuts (
	chain    INTEGER NOT NULL PRIMARY KEY,
	position INTEGER NOT NULL,
	head     BLOB NOT NULL
) STRICT;

INSERT INTO leases (name, until) VALUES ('auditArchive', 0);
