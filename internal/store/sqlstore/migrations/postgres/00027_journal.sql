-- +goose Up

-- A journal is beside an embedded database only.
SELECT 1;
