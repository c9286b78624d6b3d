-- +goose Up

PRAGMA user_version = 31;

-- How far the rows of the audit trail have been delivered to each receiver, and which
-- process delivers them until when.
CREATE TABLE audit_sinks (
	name   TEXT    NOT NULL PRIMARY KEY,
	sent   INTEGER NOT NULL,
	holder BLOB    NOT NULL,
	until  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
