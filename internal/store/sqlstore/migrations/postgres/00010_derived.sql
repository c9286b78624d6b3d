-- +goose Up

-- The session that a delegated or scoped one was made from: it ends those with
-- itself.
ALTER TABLE sessions ADD COLUMN parent_id BYTEA;
CREATE INDEX sessions_by_parent ON sessions (parent_id) WHERE parent_id IS NOT NULL;
-- What is counted towards a principal's limit.
CREATE INDEX sessions_by_actor ON sessions (actor_id) WHERE actor_id IS NOT NULL;
