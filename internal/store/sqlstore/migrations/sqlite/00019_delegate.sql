-- +goose Up

PRAGMA user_version = 19;

-- SHA-256 of the client certificate that each request of the session has to come
-- with; empty where it is bound to none.
ALTER TABLE sessions ADD COLUMN bound_certificate BLOB NOT NULL DEFAULT x'';
UPDATE sessions SET bound_certificate = (SELECT fingerprint FROM certificates c WHERE c.id = sessions.certificate_id)
	WHERE kind IN ('certificate', 'delegated') AND EXISTS (SELECT 1 FROM certificates c WHERE c.id = sessions.certificate_id);

-- Who alone may act with the rights of a principal that has the delegation flag;
-- without a row whoever may act for others. delegate_id refers to nothing: where the
-- delegate is removed its row stays, or the last of them would be everybody's.
CREATE TABLE delegates (
	principal_id BLOB NOT NULL REFERENCES principals (id) ON DELETE CASCADE,
	delegate_id  BLOB NOT NULL,
	PRIMARY KEY (principal_id, delegate_id)
) STRICT, WITHOUT ROWID;
