-- +goose Up

-- Names order and compare by their bytes, whatever the collation of the
-- database: listings read them in ranges, and SQLite knows no other order.
ALTER TABLE principals ALTER COLUMN name TYPE TEXT COLLATE "C";

-- The limits of issuer and subject (package operations) keep the index within
-- what PostgreSQL can hold.
CREATE TABLE xauth_identities (
	principal_id BYTEA NOT NULL PRIMARY KEY REFERENCES principals (id) ON DELETE CASCADE,
	issuer       TEXT COLLATE "C" NOT NULL,
	subject      TEXT COLLATE "C" NOT NULL,
	UNIQUE (issuer, subject)
);

CREATE TABLE xauth_audiences (
	principal_id BYTEA NOT NULL REFERENCES xauth_identities (principal_id) ON DELETE CASCADE,
	audience     TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (principal_id, audience)
);
