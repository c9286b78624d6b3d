package sqlstore

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Setting reads a setting.
func (r reads) Setting(ctx context.Context, name string) ([]byte, error) {
	var value, mac []byte
	err := r.sql.Row(ctx, `SELECT value, mac FROM settings WHERE name = $1`, []any{name}, &value, &mac)
	if err == nil && name != rowmac.DataKeySetting {
		err = r.sql.CheckMAC(rowmac.Setting(name, value), mac)
	}
	if err != nil {
		return nil, err
	}
	return sqldb.OrEmpty(value), nil // a driver may return nil for an empty value
}

// PutSetting stores a setting. It records a change only of the data keys, because
// processes read the other settings only when they start.
func (tx *Tx) PutSetting(ctx context.Context, name string, value []byte) error {
	var mac driver.Valuer
	if name == rowmac.DataKeySetting {
		tx.changes.Record(keyserver.ChangeDataKey, keyserver.ID{}, keyserver.Updated)
	} else {
		mac = tx.sql.MAC(rowmac.Setting(name, value))
	}
	_, err := tx.sql.Exec(ctx, `INSERT INTO settings (name, value, mac) VALUES ($1, $2, $3)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value, mac = excluded.mac`, name, sqldb.OrEmpty(value), mac)
	return err
}

// RemoveSetting removes a setting, if it exists.
func (tx *Tx) RemoveSetting(ctx context.Context, name string) error {
	_, err := tx.sql.Exec(ctx, `DELETE FROM settings WHERE name = $1`, name)
	return err
}

// EnsureSetting reads a setting. If the setting does not exist, it stores the result of
// make. Concurrent replicas all get the stored value.
func (s *Store) EnsureSetting(ctx context.Context, name string, make func(ctx context.Context) ([]byte, error)) ([]byte, error) {
	value, err := s.Setting(ctx, name)
	if !errors.Is(err, sqldb.ErrNotFound) {
		return value, err
	}
	// make runs outside of the transaction, because it may call a remote service.
	made, err := make(ctx)
	if err != nil {
		return nil, err
	}
	err = s.Update(ctx, func(tx *Tx) error {
		value, err = tx.Setting(ctx, name)
		if !errors.Is(err, sqldb.ErrNotFound) {
			return err
		}
		if err := tx.refuseNewKey(ctx, name); err != nil {
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

// ReplaceSetting replaces the value of a setting if the stored value is still was, and returns whether it did.
func (s *Store) ReplaceSetting(ctx context.Context, name string, was, value []byte) (replaced bool, err error) {
	err = s.Update(ctx, func(tx *Tx) error {
		now, err := tx.Setting(ctx, name)
		if replaced = err == nil && bytes.Equal(now, was); !replaced {
			return err
		}
		return tx.PutSetting(ctx, name, value)
	})
	return replaced && err == nil, err
}

// refuseNewKey returns an error if name is the setting of the data keys and the database has principals. Such a
// database had a data key. A new data key would hide that the old data key is missing.
func (tx *Tx) refuseNewKey(ctx context.Context, name string) error {
	if name != rowmac.DataKeySetting {
		return nil
	}
	err := tx.sql.Row(ctx, `SELECT 1 FROM principals LIMIT 1`, nil, new(int))
	switch {
	case errors.Is(err, sqldb.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	return errors.New("the database has rows, but no data key for them: the setting " + name +
		" was deleted; restore it from a backup; nothing was written")
}
