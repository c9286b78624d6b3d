-- +goose Up

-- How often a key was used, counted with the audit rows of the uses. key_id refers
-- to nothing, so that no row of the trail ever fails by it.
CREATE TABLE key_uses (
	key_id       BYTEA  NOT NULL PRIMARY KEY,
	uses         BIGINT NOT NULL,
	last_used_at BIGINT NOT NULL
) WITH (fillfactor = 50);
