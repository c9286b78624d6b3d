-- +goose Up

PRAGMA user_version = 13;

-- Guesses that may still be made, by a digest of whose: when the bucket is full again.
CREATE TABLE login_buckets (
	key     BLOB NOT NULL PRIMARY KEY,
	full_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX login_buckets_by_time ON login_buckets (full_at);

-- From where a name has logged in, by a digest of both.
CREATE TABLE known_origins (
	key   BLOB NOT NULL PRIMARY KEY,
	until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX known_origins_by_time ON known_origins (until);
