-- +goose Up

-- Requests that somebody asked others to approve. body is NULL where there is
-- none; operations are keys with spaces between; decision is empty until it is
-- rejected or executed.
CREATE TABLE approvals (
	id             BYTEA   NOT NULL PRIMARY KEY,
	asker_system   BIGINT  NOT NULL,
	asker_id       BYTEA   NOT NULL,
	asker_name     TEXT    NOT NULL,
	method         TEXT    NOT NULL,
	path           TEXT    NOT NULL,
	body           BYTEA,
	reason         TEXT    NOT NULL,
	digest         BYTEA   NOT NULL,
	operations     TEXT    NOT NULL,
	created_at     BIGINT  NOT NULL,
	expires_at     BIGINT  NOT NULL,
	decision       TEXT    NOT NULL,
	decided_at     BIGINT  NOT NULL,
	decider_system BIGINT  NOT NULL,
	decider_id     BYTEA,
	mac            BYTEA
);
CREATE INDEX approvals_by_end ON approvals (decision, expires_at);

-- Who approved, once each.
CREATE TABLE approval_votes (
	approval_id  BYTEA   NOT NULL,
	system_id    BIGINT  NOT NULL,
	principal_id BYTEA   NOT NULL,
	name         TEXT    NOT NULL,
	at           BIGINT  NOT NULL,
	PRIMARY KEY (approval_id, system_id, principal_id)
);
