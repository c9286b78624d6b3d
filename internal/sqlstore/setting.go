package sqlstore

import (
	"context"
	"errors"
)

// Setting reads a setting.
func (r reads) Setting(ctx context.Context, name string) ([]byte, error) {
	var value []byte
	err := r.row(ctx, `SELECT value FROM settings WHERE name = $1`, []any{name}, &value)
	if err != nil {
		return nil, err
	}
	return orEmpty(value), nil // the drivers differ
}

// PutSetting stores a setting. No change is recorded: settings are what a
// process reads once, when it starts.
func (tx *Tx) PutSetting(ctx context.Context, name string, value []byte) error {
	_, err := tx.exec(ctx, `INSERT INTO settings (name, value) VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value`, name, orEmpty(value))
	return err
}

// EnsureSetting reads a setting and, where there is none, stores what make
// answers. Replicas that come at the same time all get the one that was stored.
func (s *Store) EnsureSetting(ctx context.Context, name string, make func(ctx context.Context) ([]byte, error)) ([]byte, error) {
	value, err := s.Setting(ctx, name)
	if !errors.Is(err, ErrNotFound) {
		return value, err
	}
	// Outside of the transaction, because it may ask a service far away.
	made, err := make(ctx)
	if err != nil {
		return nil, err
	}
	err = s.Update(ctx, func(tx *Tx) error {
		value, err = tx.Setting(ctx, name)
		if !errors.Is(err, ErrNotFound) {
			return err
		}
		value = made
		return tx.PutSetting(ctx, name, made)
	})
	if err != nil {
		return nil, err
	}
	return value, nil
}

// orEmpty keeps nil, which means NULL to the drivers, out of the database.
func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
