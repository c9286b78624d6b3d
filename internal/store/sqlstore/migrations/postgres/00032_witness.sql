-- +goose Up

-- The logs that are witnessed: the key of each, and what was cosigned last.
CREATE TABLE witnessed_logs (
	origin      text    NOT NULL PRIMARY KEY,
	key         text    NOT NULL,
	system_id   bigint  NOT NULL,
	witness_key text    NOT NULL,
	size        bigint  NOT NULL,
	root        bytea   NOT NULL,
	seen_at     bigint  NOT NULL,
	conflict    text    NOT NULL,
	conflict_at bigint  NOT NULL,
	mac         bytea
);

-- Whether a peer and this key server witness each other.
ALTER TABLE trusted_servers ADD COLUMN witness smallint NOT NULL DEFAULT 0;
