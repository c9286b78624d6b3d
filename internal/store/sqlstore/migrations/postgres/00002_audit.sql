-- +goose Up

CREATE TABLE audit_chains (
	chain    BIGINT NOT NULL PRIMARY KEY,
	position BIGINT NOT NULL,
	head     BYTEA  NOT NULL
);

CREATE TABLE audit (
	seq          BIGINT NOT NULL PRIMARY KEY,
	time         BIGINT NOT NULL,
	operation    TEXT   NOT NULL,
	outcome      TEXT   NOT NULL,
	reason       TEXT   NOT NULL,
	system_id    BIGINT NOT NULL,
	principal_id BYTEA  NOT NULL,
	object       TEXT   NOT NULL,
	kind         TEXT   NOT NULL,
	request_id   TEXT   NOT NULL,
	filename     TEXT   NOT NULL,
	chain        BIGINT NOT NULL,
	position     BIGINT NOT NULL,
	hash         BYTEA  NOT NULL,
	previous     BYTEA  NOT NULL
);
-- Refusals are few among grants, so this index costs the common row nothing.
CREATE INDEX audit_by_reason ON audit (reason, seq) WHERE reason <> '';
CREATE INDEX audit_by_principal ON audit (principal_id, seq);
