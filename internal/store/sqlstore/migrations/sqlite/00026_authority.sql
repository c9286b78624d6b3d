-- +goose Up

PRAGMA user_version = 26;

-- The CAs of this key server's own. links are certificates one behind the other, as
-- DER has them; a time is 0 for never. wrapped_key may be replaced by itself.
CREATE TABLE authorities (
	id           BLOB    NOT NULL PRIMARY KEY,
	generation   INTEGER NOT NULL UNIQUE,
	state        TEXT    NOT NULL,
	certificate  BLOB    NOT NULL,
	links        BLOB    NOT NULL,
	wrapped_key  BLOB    NOT NULL,
	prepared_at  INTEGER NOT NULL,
	activated_at INTEGER NOT NULL,
	retiring_at  INTEGER NOT NULL,
	mac          BLOB
) STRICT, WITHOUT ROWID;

-- The CAs of peers that were learned from the peers. anchor is the fingerprint of
-- the trusted CA at the end of the links.
CREATE TABLE peer_authorities (
	system_id   INTEGER NOT NULL,
	fingerprint BLOB    NOT NULL,
	certificate BLOB    NOT NULL,
	links       BLOB    NOT NULL,
	anchor      BLOB    NOT NULL,
	learned_at  INTEGER NOT NULL,
	mac         BLOB,
	PRIMARY KEY (system_id, fingerprint)
) STRICT, WITHOUT ROWID;

-- What an authority issued and is still in force.
CREATE INDEX certificates_by_issuer ON certificates (issuer_digest, not_after);
