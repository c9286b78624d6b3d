-- +goose Up

PRAGMA user_version = 6;

CREATE TABLE acl_templates (
	id   BLOB NOT NULL PRIMARY KEY,
	name TEXT NOT NULL UNIQUE
) STRICT;

-- principal_id has no foreign key: a member may be a principal of another key
-- server.
CREATE TABLE acl_template_members (
	template_id  BLOB    NOT NULL REFERENCES acl_templates (id) ON DELETE CASCADE,
	system_id    INTEGER NOT NULL,
	principal_id BLOB    NOT NULL,
	rights       INTEGER NOT NULL,
	max_usage    INTEGER NOT NULL,
	start_stamp  BLOB    NOT NULL,
	end_stamp    BLOB    NOT NULL,
	PRIMARY KEY (template_id, system_id, principal_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX acl_template_members_by_principal ON acl_template_members (system_id, principal_id, template_id);

-- path holds bytes: they order and compare alike in both databases, whatever
-- the collation of text.
CREATE TABLE templated_directories (
	id          BLOB    NOT NULL PRIMARY KEY,
	path        BLOB    NOT NULL UNIQUE,
	alias       TEXT    NOT NULL,
	host_id     TEXT    NOT NULL,
	template_id BLOB    NOT NULL REFERENCES acl_templates (id),
	flag        INTEGER NOT NULL
) STRICT;
CREATE INDEX templated_directories_by_template ON templated_directories (template_id, id);
