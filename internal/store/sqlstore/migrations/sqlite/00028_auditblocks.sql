-- +goose Up

PRAGMA user_version = 28;

-- What finds audit rows: a block is 16384 rows by seq, and is here once all are there.
-- docs/adr/0047-how-audit-rows-are-found.md says why, and what it costs.
CREATE TABLE audit_blocks (
	block    INTEGER NOT NULL PRIMARY KEY,
	earliest INTEGER NOT NULL,
	latest   INTEGER NOT NULL
) STRICT;

-- What stands in the rows of a block, and in which of its rows, from 0, it does so for
-- the first and for the last time.
CREATE TABLE audit_block_keys (
	block     INTEGER NOT NULL,
	kind      INTEGER NOT NULL,
	key       BLOB    NOT NULL,
	first_row INTEGER NOT NULL,
	last_row  INTEGER NOT NULL,
	PRIMARY KEY (block, kind, key)
) STRICT, WITHOUT ROWID;

DROP INDEX audit_by_reason;
DROP INDEX audit_by_principal;
