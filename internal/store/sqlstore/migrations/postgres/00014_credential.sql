-- +goose Up

-- What a scoped session may do, as ids of operations one behind the other, and
-- which rights it may give. NULL: the operations of before there was a choice.
ALTER TABLE sessions ADD COLUMN scope_operations BYTEA;
ALTER TABLE sessions ADD COLUMN may_grant BIGINT NOT NULL DEFAULT 0;
