-- +goose Up

PRAGMA user_version = 15;

-- From where a session was opened; empty where that is not known.
ALTER TABLE sessions ADD COLUMN address TEXT NOT NULL DEFAULT '';
