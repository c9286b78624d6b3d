-- +goose Up

-- SHA-256 of the client certificate that each request of the session has to come
-- with; empty where it is bound to none.
ALTER TABLE sessions ADD COLUMN bound_certificate BYTEA NOT NULL DEFAULT '';
UPDATE sessions SET bound_certificate = (SELECT fingerprint FROM certificates c WHERE c.id = sessions.certificate_id)
	WHERE kind IN ('certificate', 'delegated') AND EXISTS (SELECT 1 FROM certificates c WHERE c.id = sessions.certificate_id);
