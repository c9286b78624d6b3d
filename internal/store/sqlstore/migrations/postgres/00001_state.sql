-- +goose Up

CREATE TABLE settings (
	name  TEXT  NOT NULL PRIMARY KEY,
	value BYTEA NOT NULL
);

CREATE TABLE sequences (
	name  TEXT   NOT NULL PRIMARY KEY,
	value BIGINT NOT NULL
);
INSERT INTO sequences (name, value) VALUES ('changes', 0), ('audit', 0);

CREATE TABLE changes (
	seq    BIGINT NOT NULL PRIMARY KEY,
	kind   TEXT   NOT NULL,
	id     BYTEA  NOT NULL,
	action TEXT   NOT NULL
);

CREATE TABLE roles (
	id       BYTEA  NOT NULL PRIMARY KEY,
	name     TEXT   NOT NULL UNIQUE,
	built_in BIGINT NOT NULL
);

CREATE TABLE role_operations (
	role_id      BYTEA NOT NULL REFERENCES roles (id) ON DELETE CASCADE,
	operation_id BYTEA NOT NULL,
	PRIMARY KEY (role_id, operation_id)
);

CREATE TABLE principals (
	id            BYTEA  NOT NULL PRIMARY KEY,
	system_id     BIGINT NOT NULL,
	type          TEXT   NOT NULL,
	name          TEXT   NOT NULL,
	flags         BIGINT NOT NULL,
	password_hash TEXT,
	UNIQUE (type, name)
);

CREATE TABLE principal_roles (
	principal_id BYTEA NOT NULL REFERENCES principals (id) ON DELETE CASCADE,
	role_id      BYTEA NOT NULL REFERENCES roles (id) ON DELETE CASCADE,
	PRIMARY KEY (principal_id, role_id)
);
CREATE INDEX principal_roles_by_role ON principal_roles (role_id, principal_id);

CREATE TABLE group_members (
	group_id  BYTEA NOT NULL REFERENCES principals (id) ON DELETE CASCADE,
	member_id BYTEA NOT NULL REFERENCES principals (id) ON DELETE CASCADE,
	PRIMARY KEY (group_id, member_id)
);
CREATE INDEX group_members_by_member ON group_members (member_id, group_id);

-- keys is a word of PostgreSQL's grammar, though not a reserved one.
CREATE TABLE stored_keys (
	id         BYTEA  NOT NULL PRIMARY KEY,
	algorithm  TEXT   NOT NULL,
	key_bytes  BIGINT NOT NULL,
	wrapped    BYTEA  NOT NULL,
	acl_id     BYTEA  NOT NULL UNIQUE,
	created_at BIGINT NOT NULL
);

-- principal_id has no foreign key: an entry may name a principal of another
-- key server.
CREATE TABLE acl_entries (
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

-- A certificate is found to be a duplicate by its SHA-256, because PostgreSQL
-- cannot index a value as long as some certificates are.
CREATE TABLE trusted_cas (
	id          BYTEA  NOT NULL PRIMARY KEY,
	fingerprint BYTEA  NOT NULL UNIQUE,
	status      BIGINT NOT NULL,
	subject     TEXT   NOT NULL,
	issuer      TEXT   NOT NULL,
	key_type    TEXT   NOT NULL,
	serial      BYTEA  NOT NULL,
	not_before  BIGINT NOT NULL,
	not_after   BIGINT NOT NULL,
	der         BYTEA  NOT NULL
);

CREATE TABLE sessions (
	id           BYTEA  NOT NULL PRIMARY KEY,
	hash         BYTEA  NOT NULL UNIQUE,
	system_id    BIGINT NOT NULL,
	principal_id BYTEA  NOT NULL,
	kind         TEXT   NOT NULL,
	created_at   BIGINT NOT NULL,
	expires_at   BIGINT NOT NULL,
	last_used_at BIGINT NOT NULL,
	bound_key    TEXT   NOT NULL
);
CREATE INDEX sessions_by_expiry ON sessions (expires_at);
CREATE INDEX sessions_by_use ON sessions (last_used_at);
