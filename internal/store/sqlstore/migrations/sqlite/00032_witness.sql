-- +goose Up

PRAGMA user_version = 32;

-- The logs that are witnessed: the key of each, and what was cosigned last.
CREATE TABLE witnessed_logs (
	origin      TEXT    NOT NULL PRIMARY KEY,
	key         TEXT    NOT NULL,
	system_id   INTEGER NOT NULL,
	witness_key TEXT    NOT NULL,
	size        INTEGER NOT NULL,
	root        BLOB    NOT NULL,
	seen_at     INTEGER NOT NULL,
	conflict    TEXT    NOT NULL,
	conflict_at INTEGER NOT NULL,
	mac         BLOB
) STRICT, WITHOUT ROWID;

-- Whether a peer and this key server witness each other.
ALTER TABLE trusted_servers ADD COLUMN witness INTEGER NOT NULL DEFAULT 0;
