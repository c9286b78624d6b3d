-- +goose Up

PRAGMA user_version = 19;

-- SHA-256 of the client certificate that each request of the session has to come
-- with; empty where it is bound to none.
ALTER TABLE sessions ADD COLUMN bound_certificate BLOB NOT NULL DEFAULT x'';
UPDATE sessions SET bound_certificate = (SELECT fingerprint FROM certificates c WHERE c.id = sessions.certificate_id)
	WHERE kind IN ('certificate', 'delegated') AND EXISTS (SELECT 1 FROM certificates c WHERE c.id = sessions.certificate_id);
