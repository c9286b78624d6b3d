-- +goose Up

PRAGMA user_version = 33;

-- Who manages an object. It goes with the object: Tx.dropOwners.
CREATE TABLE owners (
	kind  TEXT    NOT NULL,
	id    BLOB    NOT NULL,
	owner TEXT    NOT NULL,
	since INTEGER NOT NULL,
	mac   BLOB,
	PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;
