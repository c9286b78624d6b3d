-- +goose Up

-- Which programs can work with the database: those that know the schema floor, which a
-- migration raises that takes away what older ones need (docs/adr/0056). floor_release
-- is the first release of those; version and release are of the newest program that was
-- here. There is one row.
CREATE TABLE schema_floor (
	name          text   NOT NULL PRIMARY KEY,
	floor         bigint NOT NULL,
	floor_release text   NOT NULL,
	version       bigint NOT NULL,
	release       text   NOT NULL
);
INSERT INTO schema_floor (name, floor, floor_release, version, release) VALUES ('program', 34, '', 0, '');
