-- +goose Up

PRAGMA user_version = 2;

CREATE TABLE audit_chains (
	chain    INTEGER NOT NULL PRIMARY KEY,
	position INTEGER NOT NULL,
	head     BLOB    NOT NULL
) STRICT;

CREATE TABLE audit (
	seq          INTEGER NOT NULL PRIMARY KEY,
	time         INTEGER NOT NULL,
	operation    TEXT    NOT NULL,
	outcome      TEXT    NOT NULL,
	reason       TEXT    NOT NULL,
	system_id    INTEGER NOT NULL,
	principal_id BLOB    NOT NULL,
	object       TEXT    NOT NULL,
	kind         TEXT    NOT NULL,
	request_id   TEXT    NOT NULL,
	filename     TEXT    NOT NULL,
	chain        INTEGER NOT NULL,
	position     INTEGER NOT NULL,
	hash         BLOB    NOT NULL,
	previous     BLOB    NOT NULL
) STRICT;
-- Refusals are few among grants, so this index costs the common row nothing.
CREATE INDEX audit_by_reason ON audit (reason, seq) WHERE reason <> '';
CREATE INDEX audit_by_principal ON audit (principal_id, seq);
