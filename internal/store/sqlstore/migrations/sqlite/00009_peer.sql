-- +goose Up

PRAGMA user_version = 9;

-- Calls of peers that took effect, for as long as they may be repeated.
CREATE TABLE peer_calls (
	call_key BLOB    NOT NULL PRIMARY KEY,
	expires  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX peer_calls_by_expiry ON peer_calls (expires);

-- A peer that reports a principal as gone has all of its entries found.
CREATE INDEX acl_entries_by_principal ON acl_entries (system_id, principal_id);
