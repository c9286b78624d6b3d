-- +goose Up

-- Who manages an object. It goes with the object: Tx.dropOwners.
CREATE TABLE owners (
	kind  text   NOT NULL,
	id    bytea  NOT NULL,
	owner text   NOT NULL,
	since bigint NOT NULL,
	mac   bytea,
	PRIMARY KEY (kind, id)
);
