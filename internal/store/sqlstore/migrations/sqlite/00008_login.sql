-- +goose Up

PRAGMA user_version = 8;

-- Who really acts in a delegated session, and the keys that a scoped one is
-- good for, each behind its length in one byte.
ALTER TABLE sessions ADD COLUMN actor_system INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN actor_id BLOB;
ALTER TABLE sessions ADD COLUMN scope BLOB;

ALTER TABLE audit ADD COLUMN actor_system INTEGER NOT NULL DEFAULT 0;
ALTER TABLE audit ADD COLUMN actor_id BLOB;
