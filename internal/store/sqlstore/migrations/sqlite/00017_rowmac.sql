-- +goose Up

PRAGMA user_version = 17;

-- The MAC of a row under a key that the database does not hold. The rows of before
-- are sealed at the first start. A session that ended has none.
ALTER TABLE settings ADD COLUMN mac BLOB;
ALTER TABLE roles ADD COLUMN mac BLOB;
ALTER TABLE principals ADD COLUMN mac BLOB;
ALTER TABLE stored_keys ADD COLUMN mac BLOB;
ALTER TABLE trusted_cas ADD COLUMN mac BLOB;
ALTER TABLE trusted_servers ADD COLUMN mac BLOB;
ALTER TABLE principal_trusts ADD COLUMN mac BLOB;
ALTER TABLE certificates ADD COLUMN mac BLOB;
ALTER TABLE revocation_policies ADD COLUMN mac BLOB;
ALTER TABLE revocation_lists ADD COLUMN mac BLOB;
ALTER TABLE acl_templates ADD COLUMN mac BLOB;
ALTER TABLE acl_template_members ADD COLUMN mac BLOB;
ALTER TABLE templated_directories ADD COLUMN mac BLOB;
ALTER TABLE sessions ADD COLUMN mac BLOB;
