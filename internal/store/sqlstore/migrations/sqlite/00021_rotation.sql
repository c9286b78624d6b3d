-- +goose Up

PRAGMA user_version = 21;

-- How the keys of a line follow each other, in days, 0 for never; lineage is the
-- first key. due_at is when the line wants something done, 0 for never.
CREATE TABLE key_rotations (
	lineage       BLOB    NOT NULL PRIMARY KEY REFERENCES stored_keys (id) ON DELETE CASCADE,
	every_days    INTEGER NOT NULL,
	verify_days   INTEGER NOT NULL,
	destroy_days  INTEGER NOT NULL,
	due_at        INTEGER NOT NULL,
	mac           BLOB
) STRICT, WITHOUT ROWID;
CREATE INDEX key_rotations_by_due ON key_rotations (due_at) WHERE due_at > 0;

-- Work that one process does at a time: whoever has it has it until then. keyErase
-- is not 0 while bytes went that may still be in the files.
CREATE TABLE leases (
	name  TEXT    NOT NULL PRIMARY KEY,
	until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO leases (name, until) VALUES ('keyLife', 0), ('keyErase', 0);

-- A listing reads the entries of a principal in the order of the lists.
DROP INDEX acl_entries_by_principal;
CREATE INDEX acl_entries_by_principal ON acl_entries (system_id, principal_id, acl_id);
