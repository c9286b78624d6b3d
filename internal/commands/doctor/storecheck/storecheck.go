package storecheck

import (
	"context"
	"errors"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/doctor"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/datadir"
)

// Volume returns the check of the volume of a data directory.
func Volume(dir string) doctor.Check {
	return doctor.Check{Name: "volume", Run: func(context.Context, func(string) error) (string, error) {
		v, err := datadir.VolumeOf(dir)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%d of %d MiB are free", v.Free>>20, v.Size>>20), v.Check(0)
	}}
}

// Database returns the checks of a database that is open read-only. kek returns the URL of its key-encryption key.
func Database(store *sqlstore.Store, kek func() (url string, err error)) []doctor.Check {
	opened := errors.New("the data key is not open; see the check key")
	return []doctor.Check{
		{Name: "schema", Run: func(ctx context.Context, found func(string) error) (string, error) {
			holds := "the database has the schema of this version" // OpenReadOnly rejects an older schema
			if newer := store.NewerWarning(); newer != "" {
				holds = newer
			}
			differences, err := store.CheckSchema(ctx)
			for _, d := range differences {
				if err == nil {
					err = found(d.Text)
				}
			}
			return holds, err
		}},
		{Name: "key", Run: func(ctx context.Context, found func(string) error) (string, error) {
			ring, err := openKey(ctx, store, kek)
			if err != nil {
				return "", err
			}
			store.UseRowKey(ring.RowKey())
			if opened = nil; !ring.RowsSealed() {
				err = found("the rows have no MACs yet: start the server once with this version")
			}
			return "the key-encryption key opens the data key", err
		}},
		{Name: "settings", Run: func(ctx context.Context, found func(string) error) (string, error) {
			if opened != nil {
				return "", opened
			}
			for _, name := range sqlstore.RequiredSettings {
				_, err := store.Setting(ctx, name)
				if errors.Is(err, sqlstore.ErrNotFound) {
					err = found(name + " is missing, and the server does not start without it; restore it from a backup")
				}
				if err != nil && fault.CodeOf(err) != fault.StoreTampered { // the check of the rows reports these
					return "", err
				}
			}
			return "the settings that a start requires were checked", nil
		}},
		{Name: "rows", Run: func(ctx context.Context, found func(string) error) (string, error) {
			if opened != nil {
				return "", opened
			}
			rows, err := store.CheckRows(ctx, func(f rowmac.Finding) error { return found(f.String()) })
			return fmt.Sprintf("%d rows were compared with their MACs", rows), err
		}},
	}
}

func openKey(ctx context.Context, store *sqlstore.Store, kek func() (string, error)) (_ *keyring.Keyring, err error) {
	url, err := kek()
	if err != nil {
		return nil, err
	}
	provider, err := keyring.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, provider.Close()) }()
	return keyring.Existing(ctx, provider, store.Setting)
}
