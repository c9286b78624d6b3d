-- +goose Up

-- What finds audit rows: a block is 16384 rows by seq, and is here once all are there.
-- docs/adr/0047-how-audit-rows-are-found.md says why, and what it costs.
CREATE TABLE audit_blocks (
	block    bigint NOT NULL PRIMARY KEY,
	earliest bigint NOT NULL,
	latest   bigint NOT NULL
);

-- What stands in the rows of a block, and in which of its rows, from 0, it does so for
-- the first and for the last time.
CREATE TABLE audit_block_keys (
	block     bigint NOT NULL,
	kind      smallint NOT NULL,
	first_row smallint NOT NULL,
	last_row  smallint NOT NULL,
	key       bytea NOT NULL,
	PRIMARY KEY (block, kind, key)
);

DROP INDEX audit_by_reason;
DROP INDEX audit_by_principal;
