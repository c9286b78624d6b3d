-- +goose Up

-- subject_key holds the bytes of subject: they order and compare alike in both
-- databases, whatever the collation of text.
CREATE TABLE certificates (
	id            BYTEA   NOT NULL PRIMARY KEY,
	fingerprint   BYTEA   NOT NULL UNIQUE,
	principal_id  BYTEA   REFERENCES principals (id) ON DELETE CASCADE,
	status        BIGINT NOT NULL,
	subject       TEXT    NOT NULL,
	subject_key   BYTEA   NOT NULL,
	issuer        TEXT    NOT NULL,
	issuer_digest TEXT    NOT NULL,
	key_type      TEXT    NOT NULL,
	serial        BYTEA   NOT NULL,
	not_before    BIGINT NOT NULL,
	not_after     BIGINT NOT NULL,
	der           BYTEA   NOT NULL,
	request       BYTEA
);
CREATE INDEX certificates_by_subject ON certificates (subject_key, id);
CREATE INDEX certificates_by_principal ON certificates (principal_id, id);

-- Rows outlive the CA in the trusted list: removing a CA and adding it again
-- must not forget what it revoked.
CREATE TABLE revocation_policies (
	issuer_digest TEXT    NOT NULL PRIMARY KEY,
	mode          TEXT    NOT NULL,
	max_age       BIGINT NOT NULL
);

CREATE TABLE revocation_lists (
	issuer_digest TEXT    NOT NULL PRIMARY KEY,
	fingerprint   BYTEA   NOT NULL,
	number        BYTEA   NOT NULL,
	this_update   BIGINT NOT NULL,
	next_update   BIGINT NOT NULL,
	imported_at   BIGINT NOT NULL,
	revoked       BIGINT NOT NULL,
	serials       BYTEA   NOT NULL
);

ALTER TABLE sessions ADD COLUMN certificate_id BYTEA;
CREATE INDEX sessions_by_principal ON sessions (principal_id, id);
