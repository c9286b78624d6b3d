-- +goose Up

-- How far the tree over the rows of the audit trail has grown. There is one row.
CREATE TABLE audit_tree (
	name       text   NOT NULL PRIMARY KEY,
	size       bigint NOT NULL,
	root       bytea  NOT NULL,
	at         bigint NOT NULL,
	checkpoint bytea  NOT NULL
);

-- Its hashes, up to 256 of a level in a row.
CREATE TABLE audit_tiles (
	level  integer NOT NULL,
	place  bigint  NOT NULL,
	hashes bytea   NOT NULL,
	PRIMARY KEY (level, place)
);
