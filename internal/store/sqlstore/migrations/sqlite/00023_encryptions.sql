-- +goose Up

PRAGMA user_version = 23;

-- How many encryptions under a key were given out to processes, in blocks. What a
-- process does not use of its block is lost with it.
CREATE TABLE key_encryptions (
	key_id   BLOB PRIMARY KEY,
	reserved INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
