-- +goose Up

-- How far the rows of the audit trail have been delivered to each receiver, and which
-- process delivers them until when.
CREATE TABLE audit_sinks (
	name   text   NOT NULL PRIMARY KEY,
	sent   bigint NOT NULL,
	holder bytea  NOT NULL,
	until  bigint NOT NULL
);
