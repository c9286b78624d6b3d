-- +goose Up

-- "KSOP": a file without it is not ours. user_version repeats the version of
-- the schema where it can be read before the database is opened.
PRAGMA application_id = 1263751760;
PRAGMA user_version = 1;

CREATE TABLE settings (
	name  TEXT NOT NULL PRIMARY KEY,
	value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE sequences (
	name  TEXT    NOT NULL PRIMARY KEY,
	value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO sequences (name, value) VALUES ('changes', 0), ('audit', 0);

CREATE TABLE changes (
	seq    INTEGER NOT NULL PRIMARY KEY,
	kind   TEXT    NOT NULL,
	id     BLOB    NOT NULL,
	action TEXT    NOT NULL
) STRICT;

CREATE TABLE roles (
	id       BLOB    NOT NULL PRIMARY KEY,
	name     TEXT    NOT NULL UNIQUE,
	built_in INTEGER NOT NULL
) STRICT;

CREATE TABLE role_operations (
	role_id      BLOB NOT NULL REFERENCES roles (id) ON DELETE CASCADE,
	operation_id BLOB NOT NULL,
	PRIMARY KEY (role_id, operation_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE principals (
	id            BLOB    NOT NULL PRIMARY KEY,
	system_id     INTEGER NOT NULL,
	type          TEXT    NOT NULL,
	name          TEXT    NOT NULL,
	flags         INTEGER NOT NULL,
	password_hash TEXT,
	UNIQUE (type, name)
) STRICT;

CREATE TABLE principal_roles (
	principal_id BLOB NOT NULL REFERENCES principals (id) ON DELETE CASCADE,
	role_id      BLOB NOT NULL REFERENCES roles (id) ON DELETE CASCADE,
	PRIMARY KEY (principal_id, role_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX principal_roles_by_role ON principal_roles (role_id, principal_id);

CREATE TABLE group_members (
	group_id  BLOB NOT NULL REFERENCES principals (id) ON DELETE CASCADE,
	member_id BLOB NOT NULL REFERENCES principals (id) ON DELETE CASCADE,
	PRIMARY KEY (group_id, member_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX group_members_by_member ON group_members (member_id, group_id);

-- keys is a word of PostgreSQL's grammar, though not a reserved one.
CREATE TABLE stored_keys (
	id         BLOB    NOT NULL PRIMARY KEY,
	algorithm  TEXT    NOT NULL,
	key_bytes  INTEGER NOT NULL,
	wrapped    BLOB    NOT NULL,
	acl_id     BLOB    NOT NULL UNIQUE,
	created_at INTEGER NOT NULL
) STRICT;

-- principal_id has no foreign key: an entry may name a principal of another
-- key server.
CREATE TABLE acl_entries (
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

-- A certificate is found to be a duplicate by its SHA-256, because PostgreSQL
-- cannot index a value as long as some certificates are.
CREATE TABLE trusted_cas (
	id          BLOB    NOT NULL PRIMARY KEY,
	fingerprint BLOB    NOT NULL UNIQUE,
	status      INTEGER NOT NULL,
	subject     TEXT    NOT NULL,
	issuer      TEXT    NOT NULL,
	key_type    TEXT    NOT NULL,
	serial      BLOB    NOT NULL,
	not_before  INTEGER NOT NULL,
	not_after   INTEGER NOT NULL,
	der         BLOB    NOT NULL
) STRICT;

CREATE TABLE sessions (
	id           BLOB    NOT NULL PRIMARY KEY,
	hash         BLOB    NOT NULL UNIQUE,
	system_id    INTEGER NOT NULL,
	principal_id BLOB    NOT NULL,
	kind         TEXT    NOT NULL,
	created_at   INTEGER NOT NULL,
	expires_at   INTEGER NOT NULL,
	last_used_at INTEGER NOT NULL,
	bound_key    TEXT    NOT NULL
) STRICT;
CREATE INDEX sessions_by_expiry ON sessions (expires_at);
CREATE INDEX sessions_by_use ON sessions (last_used_at);
