-- +goose Up

PRAGMA user_version = 27;

-- Up to where the tables of the trail are filled from which journal beside the
-- database. open is 0 where all of it is in them and no journal is needed.
CREATE TABLE audit_journal (
	only  INTEGER NOT NULL PRIMARY KEY CHECK (only = 1),
	id    BLOB    NOT NULL,
	life  INTEGER NOT NULL,
	block INTEGER NOT NULL,
	open  INTEGER NOT NULL
) STRICT;
INSERT INTO audit_journal (only, id, life, block, open) VALUES (1, zeroblob(16), 1, 0, 0);
