-- +goose Up

-- The MAC of a row under a key that the database does not hold. The rows of before
-- are sealed at the first start. A session that ended has none.
ALTER TABLE settings ADD COLUMN mac BYTEA;
ALTER TABLE roles ADD COLUMN mac BYTEA;
ALTER TABLE principals ADD COLUMN mac BYTEA;
ALTER TABLE stored_keys ADD COLUMN mac BYTEA;
ALTER TABLE trusted_cas ADD COLUMN mac BYTEA;
ALTER TABLE trusted_servers ADD COLUMN mac BYTEA;
ALTER TABLE principal_trusts ADD COLUMN mac BYTEA;
ALTER TABLE certificates ADD COLUMN mac BYTEA;
ALTER TABLE revocation_policies ADD COLUMN mac BYTEA;
ALTER TABLE revocation_lists ADD COLUMN mac BYTEA;
ALTER TABLE acl_templates ADD COLUMN mac BYTEA;
ALTER TABLE acl_template_members ADD COLUMN mac BYTEA;
ALTER TABLE templated_directories ADD COLUMN mac BYTEA;
ALTER TABLE sessions ADD COLUMN mac BYTEA;
