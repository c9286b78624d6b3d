-- +goose Up

PRAGMA user_version = 11;

-- Calls of peers that took effect, for as long as they may be repeated, and no
-- more than so many of each peer: seq numbers those of one. The calls of the
-- minutes before are forgotten here, so that one which is repeated just now
-- counts twice.
DROP TABLE peer_calls;
CREATE TABLE peer_calls (
	call_key  BLOB    NOT NULL PRIMARY KEY,
	system_id INTEGER NOT NULL,
	seq       INTEGER NOT NULL,
	expires   INTEGER NOT NULL,
	UNIQUE (system_id, seq)
) STRICT, WITHOUT ROWID;
