-- +goose Up

PRAGMA user_version = 4;

-- subject_key holds the bytes of subject: they order and compare alike in both
-- databases, whatever the collation of text.
CREATE TABLE certificates (
	id            BLOB    NOT NULL PRIMARY KEY,
	fingerprint   BLOB    NOT NULL UNIQUE,
	principal_id  BLOB    REFERENCES principals (id) ON DELETE CASCADE,
	status        INTEGER NOT NULL,
	subject       TEXT    NOT NULL,
	subject_key   BLOB    NOT NULL,
	issuer        TEXT    NOT NULL,
	issuer_digest TEXT    NOT NULL,
	key_type      TEXT    NOT NULL,
	serial        BLOB    NOT NULL,
	not_before    INTEGER NOT NULL,
	not_after     INTEGER NOT NULL,
	der           BLOB    NOT NULL,
	request       BLOB
) STRICT;
CREATE INDEX certificates_by_subject ON certificates (subject_key, id);
CREATE INDEX certificates_by_principal ON certificates (principal_id, id);

-- Rows outlive the CA in the trusted list: removing a CA and adding it again
-- must not forget what it revoked.
CREATE TABLE revocation_policies (
	issuer_digest TEXT    NOT NULL PRIMARY KEY,
	mode          TEXT    NOT NULL,
	max_age       INTEGER NOT NULL
) STRICT;

CREATE TABLE revocation_lists (
	issuer_digest TEXT    NOT NULL PRIMARY KEY,
	fingerprint   BLOB    NOT NULL,
	number        BLOB    NOT NULL,
	this_update   INTEGER NOT NULL,
	next_update   INTEGER NOT NULL,
	imported_at   INTEGER NOT NULL,
	revoked       INTEGER NOT NULL,
	serials       BLOB    NOT NULL
) STRICT;

ALTER TABLE sessions ADD COLUMN certificate_id BLOB;
CREATE INDEX sessions_by_principal ON sessions (principal_id, id);
