-- +goose Up

-- The uses of DPoP proofs, for as long as a proof could be used again.
CREATE TABLE used_proofs (
	digest  BYTEA  NOT NULL PRIMARY KEY,
	expires BIGINT NOT NULL
);
CREATE INDEX used_proofs_by_expiry ON used_proofs (expires);
