-- +goose Up

PRAGMA user_version = 5;

CREATE TABLE trusted_servers (
	system_id     INTEGER NOT NULL PRIMARY KEY,
	name          TEXT    NOT NULL,
	port          INTEGER NOT NULL,
	friendly_name TEXT    NOT NULL,
	description   TEXT    NOT NULL,
	transport_id  BLOB    NOT NULL UNIQUE REFERENCES principals (id),
	chain         BLOB    NOT NULL,
	cert_id       BLOB    NOT NULL UNIQUE,
	cert_status   INTEGER NOT NULL,
	subject       TEXT    NOT NULL,
	issuer        TEXT    NOT NULL,
	key_type      TEXT    NOT NULL,
	serial        BLOB    NOT NULL,
	not_before    INTEGER NOT NULL,
	not_after     INTEGER NOT NULL,
	der           BLOB    NOT NULL
) STRICT;

-- Rows outlive the peer that they name (contract 13.5), so system_id has no
-- foreign key.
CREATE TABLE principal_trusts (
	id           BLOB    NOT NULL PRIMARY KEY,
	principal_id BLOB    NOT NULL,
	system_id    INTEGER NOT NULL,
	flag         INTEGER NOT NULL,
	UNIQUE (principal_id, system_id)
) STRICT;
CREATE INDEX principal_trusts_by_system ON principal_trusts (system_id, id);

-- The entries of a peer that was removed, kept until it is registered again.
CREATE TABLE purged_acl_entries (
	id           BLOB    NOT NULL PRIMARY KEY,
	acl_id       BLOB    NOT NULL REFERENCES stored_keys (acl_id) ON DELETE CASCADE,
	system_id    INTEGER NOT NULL,
	principal_id BLOB    NOT NULL,
	rights       INTEGER NOT NULL,
	max_usage    INTEGER NOT NULL,
	used         INTEGER NOT NULL,
	user_right   INTEGER NOT NULL,
	start_stamp  BLOB    NOT NULL,
	end_stamp    BLOB    NOT NULL,
	UNIQUE (acl_id, system_id, principal_id)
) STRICT;
CREATE INDEX purged_acl_entries_by_system ON purged_acl_entries (system_id, acl_id);

-- Without it, removing a peer would read every entry of every key while
-- nobody else can write.
CREATE INDEX acl_entries_by_system ON acl_entries (system_id, acl_id);
