-- +goose Up

PRAGMA user_version = 12;

-- Where a request came from, in which session, what it says it is for, how often
-- the same happened, and under which approval.
ALTER TABLE audit ADD COLUMN address     TEXT NOT NULL DEFAULT '';
ALTER TABLE audit ADD COLUMN session_id  BLOB;
ALTER TABLE audit ADD COLUMN acting_for  TEXT NOT NULL DEFAULT '';
ALTER TABLE audit ADD COLUMN times       INTEGER NOT NULL DEFAULT 1;
ALTER TABLE audit ADD COLUMN approval_id BLOB;
