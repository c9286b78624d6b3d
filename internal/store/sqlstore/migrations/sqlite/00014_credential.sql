-- +goose Up

PRAGMA user_version = 14;

-- What a scoped session may do, as ids of operations one behind the other, and
-- which rights it may give. NULL: the operations of before there was a choice.
ALTER TABLE sessions ADD COLUMN scope_operations BLOB;
ALTER TABLE sessions ADD COLUMN may_grant INTEGER NOT NULL DEFAULT 0;
