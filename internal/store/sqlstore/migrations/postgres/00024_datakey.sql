-- +goose Up

-- What is wrapped begins with the id of its data key: how many keys are under one, and
-- which ones are still under the one before, is read from here.
CREATE INDEX stored_keys_by_data_key ON stored_keys (substr(wrapped, 1, 9));
