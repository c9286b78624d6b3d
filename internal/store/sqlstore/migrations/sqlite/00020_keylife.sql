-- +goose Up

PRAGMA user_version = 20;

-- How a key ages. lineage is the first key of its line, NULL for that one itself;
-- generation counts from 1 in it; state_at is when the key came into its state, 0
-- since it was made; destroy_at is when its bytes go, 0 for never.
ALTER TABLE stored_keys ADD COLUMN state TEXT NOT NULL DEFAULT 'enabled';
ALTER TABLE stored_keys ADD COLUMN lineage BLOB;
ALTER TABLE stored_keys ADD COLUMN generation INTEGER NOT NULL DEFAULT 1;
ALTER TABLE stored_keys ADD COLUMN exportable INTEGER NOT NULL DEFAULT 1;
ALTER TABLE stored_keys ADD COLUMN state_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stored_keys ADD COLUMN destroy_at INTEGER NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX stored_keys_by_lineage ON stored_keys (lineage, generation) WHERE lineage IS NOT NULL;
CREATE INDEX stored_keys_by_end ON stored_keys (destroy_at) WHERE destroy_at > 0;
