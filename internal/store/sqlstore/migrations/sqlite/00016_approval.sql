-- +goose Up

PRAGMA user_version = 16;

-- Requests that somebody asked others to approve. body is NULL where there is
-- none; operations are keys with spaces between; decision is empty until it is
-- rejected or executed.
CREATE TABLE approvals (
	id             BLOB    NOT NULL PRIMARY KEY,
	asker_system   INTEGER NOT NULL,
	asker_id       BLOB    NOT NULL,
	asker_name     TEXT    NOT NULL,
	method         TEXT    NOT NULL,
	path           TEXT    NOT NULL,
	body           BLOB,
	reason         TEXT    NOT NULL,
	digest         BLOB    NOT NULL,
	operations     TEXT    NOT NULL,
	created_at     INTEGER NOT NULL,
	expires_at     INTEGER NOT NULL,
	decision       TEXT    NOT NULL,
	decided_at     INTEGER NOT NULL,
	decider_system INTEGER NOT NULL,
	decider_id     BLOB,
	mac            BLOB
) STRICT, WITHOUT ROWID;
CREATE INDEX approvals_by_end ON approvals (decision, expires_at);

-- Who approved, once each.
CREATE TABLE approval_votes (
	approval_id  BLOB    NOT NULL,
	system_id    INTEGER NOT NULL,
	principal_id BLOB    NOT NULL,
	name         TEXT    NOT NULL,
	at           INTEGER NOT NULL,
	PRIMARY KEY (approval_id, system_id, principal_id)
) STRICT, WITHOUT ROWID;
