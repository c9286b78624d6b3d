-- +goose Up

-- What of the trail is where: its first row here, and the last one that the archive
-- has. There is one row.
CREATE TABLE audit_extent (
	name     text NOT NULL PRIMARY KEY,
	first    bigint NOT NULL,
	archived bigint NOT NULL
);
INSERT INTO audit_extent (name, first, archived) VALUES ('trail', 1, 0);

-- Where each chain stands before that first row.
CREATE TABLE audit_cuts (
	chain    bigint NOT NULL PRIMARY KEY,
	position bigint NOT NULL,
	head     bytea NOT NULL
);

INSERT INTO leases (name, until) VALUES ('auditArchive', 0);

-- Rows are removed by dropping partitions. What there is becomes the first of them, as
-- it is: its rows are read once and not copied. The others have 1,048,576 rows each; the
-- server makes them ahead. A partition is named by its last row. That a row goes to the
-- default one means that the server could not, and is no failure.
-- +goose StatementBegin
DO $$
DECLARE
	size  CONSTANT bigint := 1048576;
	until bigint;
	made  text[];
	def   text;
BEGIN
	LOCK TABLE audit IN ACCESS EXCLUSIVE MODE;
	SELECT (coalesce(max(seq), 0) / size + 1) * size INTO until FROM audit;
	SELECT coalesce(array_agg(pg_get_indexdef(i.indexrelid) ORDER BY i.indexrelid), '{}') INTO made
		FROM pg_index i WHERE i.indrelid = 'audit'::regclass AND NOT i.indisprimary;
	FOR def IN SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = 'audit'::regclass LOOP
		EXECUTE format('ALTER INDEX %I RENAME TO %I', def, 'former_' || def);
	END LOOP;
	EXECUTE format('ALTER TABLE audit RENAME TO %I', 'audit_until_' || lpad(until::text, 20, '0'));
	EXECUTE format('CREATE TABLE audit (LIKE %I INCLUDING DEFAULTS) PARTITION BY RANGE (seq)', 'audit_until_' || lpad(until::text, 20, '0'));
	ALTER TABLE audit ADD PRIMARY KEY (seq);
	FOREACH def IN ARRAY made LOOP
		EXECUTE def; -- attaching finds the same index there, and makes none
	END LOOP;
	EXECUTE format('ALTER TABLE audit ATTACH PARTITION %I FOR VALUES FROM (1) TO (%s)', 'audit_until_' || lpad(until::text, 20, '0'), until + 1);
	FOR i IN 1..4 LOOP
		until := until + size;
		EXECUTE format('CREATE TABLE %I PARTITION OF audit FOR VALUES FROM (%s) TO (%s)', 'audit_until_' || lpad(until::text, 20, '0'), until - size + 1, until + 1);
	END LOOP;
	CREATE TABLE audit_default PARTITION OF audit DEFAULT;
END $$;
-- +goose StatementEnd
