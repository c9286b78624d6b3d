-- +goose Up

PRAGMA user_version = 7;

-- The uses of DPoP proofs, for as long as a proof could be used again.
CREATE TABLE used_proofs (
	digest  BLOB    NOT NULL PRIMARY KEY,
	expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX used_proofs_by_expiry ON used_proofs (expires);
