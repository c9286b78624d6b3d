-- +goose Up

-- How many encryptions under a key were given out to processes, in blocks. What a
-- process does not use of its block is lost with it.
CREATE TABLE key_encryptions (
	key_id   BYTEA PRIMARY KEY,
	reserved BIGINT NOT NULL
);
