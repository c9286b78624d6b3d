-- +goose Up

-- What a request names, as it was when it was asked for: JSON of kind, key and
-- digest. Empty in rows of before, which are refused when they are approved or
-- executed.
ALTER TABLE approvals ADD COLUMN subjects TEXT NOT NULL DEFAULT '';
