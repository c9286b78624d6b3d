-- +goose Up

PRAGMA user_version = 22;

-- How often a key was used, counted with the audit rows of the uses. key_id refers
-- to nothing, so that no row of the trail ever fails by it.
CREATE TABLE key_uses (
	key_id       BLOB    NOT NULL PRIMARY KEY,
	uses         INTEGER NOT NULL,
	last_used_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
