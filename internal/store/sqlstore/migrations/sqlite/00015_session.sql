-- +goose Up

PRAGMA user_version = 15;

-- From where a session was opened; empty where that is not known.
ALTER TABLE sessions ADD COLUMN address TEXT NOT NULL DEFAULT '';

-- A session that ended because a principal was disabled stays until its time is
-- over, so that whoever uses it is told why.
ALTER TABLE sessions ADD COLUMN ended INTEGER NOT NULL DEFAULT 0;
UPDATE sessions SET ended = 1 WHERE EXISTS (SELECT 1 FROM principals p
	WHERE (p.id = sessions.principal_id OR p.id = sessions.actor_id) AND p.flags & 1 = 0);
