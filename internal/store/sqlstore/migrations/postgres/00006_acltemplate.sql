-- +goose Up

CREATE TABLE acl_templates (
	id   BYTEA NOT NULL PRIMARY KEY,
	name TEXT  NOT NULL UNIQUE
);

-- principal_id has no foreign key: a member may be a principal of another key
-- server.
CREATE TABLE acl_template_members (
	template_id  BYTEA  NOT NULL REFERENCES acl_templates (id) ON DELETE CASCADE,
	system_id    BIGINT NOT NULL,
	principal_id BYTEA  NOT NULL,
	rights       BIGINT NOT NULL,
	max_usage    BIGINT NOT NULL,
	start_stamp  BYTEA  NOT NULL,
	end_stamp    BYTEA  NOT NULL,
	PRIMARY KEY (template_id, system_id, principal_id)
);
CREATE INDEX acl_template_members_by_principal ON acl_template_members (system_id, principal_id, template_id);

-- path holds bytes: they order and compare alike in both databases, whatever
-- the collation of text.
CREATE TABLE templated_directories (
	id          BYTEA  NOT NULL PRIMARY KEY,
	path        BYTEA  NOT NULL UNIQUE,
	alias       TEXT   NOT NULL,
	host_id     TEXT   NOT NULL,
	template_id BYTEA  NOT NULL REFERENCES acl_templates (id),
	flag        BIGINT NOT NULL
);
CREATE INDEX templated_directories_by_template ON templated_directories (template_id, id);
