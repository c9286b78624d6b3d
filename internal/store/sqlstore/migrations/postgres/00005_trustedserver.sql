-- +goose Up

CREATE TABLE trusted_servers (
	system_id     BIGINT NOT NULL PRIMARY KEY,
	name          TEXT   NOT NULL,
	port          BIGINT NOT NULL,
	friendly_name TEXT   NOT NULL,
	description   TEXT   NOT NULL,
	transport_id  BYTEA  NOT NULL UNIQUE REFERENCES principals (id),
	chain         BYTEA  NOT NULL,
	cert_id       BYTEA  NOT NULL UNIQUE,
	cert_status   BIGINT NOT NULL,
	subject       TEXT   NOT NULL,
	issuer        TEXT   NOT NULL,
	key_type      TEXT   NOT NULL,
	serial        BYTEA  NOT NULL,
	not_before    BIGINT NOT NULL,
	not_after     BIGINT NOT NULL,
	der           BYTEA  NOT NULL
);

-- Rows outlive the peer that they name (contract 13.5), so system_id has no
-- foreign key.
CREATE TABLE principal_trusts (
	id           BYTEA  NOT NULL PRIMARY KEY,
	principal_id BYTEA  NOT NULL,
	system_id    BIGINT NOT NULL,
	flag         BIGINT NOT NULL,
	UNIQUE (principal_id, system_id)
);
CREATE INDEX principal_trusts_by_system ON principal_trusts (system_id, id);

-- The entries of a peer that was removed, kept until it is registered again.
CREATE TABLE purged_acl_entries (
	id           BYTEA  NOT NULL PRIMARY KEY,
	acl_id       BYTEA  NOT NULL REFERENCES stored_keys (acl_id) ON DELETE CASCADE,
	system_id    BIGINT NOT NULL,
	principal_id BYTEA  NOT NULL,
	rights       BIGINT NOT NULL,
	max_usage    BIGINT NOT NULL,
	used         BIGINT NOT NULL,
	user_right   BIGINT NOT NULL,
	start_stamp  BYTEA  NOT NULL,
	end_stamp    BYTEA  NOT NULL,
	UNIQUE (acl_id, system_id, principal_id)
);
CREATE INDEX purged_acl_entries_by_system ON purged_acl_entries (system_id, acl_id);

-- Without it, removing a peer would read every entry of every key while
-- nobody else can write.
CREATE INDEX acl_entries_by_system ON acl_entries (system_id, acl_id);
