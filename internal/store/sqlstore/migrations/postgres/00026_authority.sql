-- +goose Up

-- The CAs of this key server's own. links are certificates one behind the other, as
-- DER has them; a time is 0 for never. wrapped_key may be replaced by itself.
CREATE TABLE authorities (
	id           BYTEA   NOT NULL PRIMARY KEY,
	generation   BIGINT  NOT NULL UNIQUE,
	state        TEXT    NOT NULL,
	certificate  BYTEA   NOT NULL,
	links        BYTEA   NOT NULL,
	wrapped_key  BYTEA   NOT NULL,
	prepared_at  BIGINT  NOT NULL,
	activated_at BIGINT  NOT NULL,
	retiring_at  BIGINT  NOT NULL,
	mac          BYTEA
);

-- The CAs of peers that were learned from the peers. anchor is the fingerprint of
-- the trusted CA at the end of the links.
CREATE TABLE peer_authorities (
	system_id   BIGINT  NOT NULL,
	fingerprint BYTEA   NOT NULL,
	certificate BYTEA   NOT NULL,
	links       BYTEA   NOT NULL,
	anchor      BYTEA   NOT NULL,
	learned_at  BIGINT  NOT NULL,
	mac         BYTEA,
	PRIMARY KEY (system_id, fingerprint)
);

-- What an authority issued and is still in force.
CREATE INDEX certificates_by_issuer ON certificates (issuer_digest, not_after);
