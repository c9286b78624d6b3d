-- +goose Up

-- Who really acts in a delegated session, and the keys that a scoped one is
-- good for, each behind its length in one byte.
ALTER TABLE sessions ADD COLUMN actor_system BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN actor_id BYTEA;
ALTER TABLE sessions ADD COLUMN scope BYTEA;

ALTER TABLE audit ADD COLUMN actor_system BIGINT NOT NULL DEFAULT 0;
ALTER TABLE audit ADD COLUMN actor_id BYTEA;
