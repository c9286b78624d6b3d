-- +goose Up

PRAGMA user_version = 3;

-- The limits of issuer and subject (package operations) keep the index within
-- what PostgreSQL can hold.
CREATE TABLE xauth_identities (
	principal_id BLOB NOT NULL PRIMARY KEY REFERENCES principals (id) ON DELETE CASCADE,
	issuer       TEXT NOT NULL,
	subject      TEXT NOT NULL,
	UNIQUE (issuer, subject)
) STRICT;

CREATE TABLE xauth_audiences (
	principal_id BLOB NOT NULL REFERENCES xauth_identities (principal_id) ON DELETE CASCADE,
	audience     TEXT NOT NULL,
	PRIMARY KEY (principal_id, audience)
) STRICT, WITHOUT ROWID;
