package bootstrap

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/witness"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// keepAuditKeys creates the keys of the audit tree and of the witness if they do not exist. They are missing at the
// first start, and at the first start on a database of an older version.
func (c Config) keepAuditKeys(ctx context.Context, system keyserver.SystemID) error {
	return errors.Join(
		c.keepAuditKey(ctx, system, sqlstore.SettingAuditKey, func(ctx context.Context, tx *sqlstore.Tx) error {
			if head, err := tx.AuditTree(ctx); err != nil || head.Size > 0 || len(head.Checkpoint) > 0 {
				return errors.Join(err, errors.New("the database has an audit tree, but not the key that signed it: the setting "+
					sqlstore.SettingAuditKey+" was deleted; restore it from a backup (nothing was written)"))
			}
			return nil
		}, func(ctx context.Context, tx *sqlstore.Tx) ([]byte, error) { return c.beginTree(ctx, tx, system) }),
		c.keepAuditKey(ctx, system, sqlstore.SettingWitnessKey, func(ctx context.Context, tx *sqlstore.Tx) error {
			if logs, err := tx.WitnessedLogs(ctx); err != nil || len(logs) > 0 {
				return errors.Join(err, errors.New("the database has cosigned logs, but not the key that cosigned them: the setting "+
					sqlstore.SettingWitnessKey+" was deleted; restore it from a backup (nothing was written)"))
			}
			return nil
		}, func(context.Context, *sqlstore.Tx) ([]byte, error) {
			return witness.NewKey(c.Random, witness.Name(c.ServerName, system))
		}),
	)
}

// beginTree creates the key of the audit tree, and a checkpoint of zero rows. Therefore a database without a checkpoint
// shows that a checkpoint was removed.
func (c Config) beginTree(ctx context.Context, tx *sqlstore.Tx, system keyserver.SystemID) ([]byte, error) {
	pair, err := tree.NewKey(c.Random, tree.Origin(c.ServerName, system))
	if err != nil {
		return nil, err
	}
	signer, err := tree.ReadKey(pair)
	if err != nil {
		return nil, err
	}
	head, err := tree.Begin(signer, c.Clock())
	if err != nil {
		return nil, err
	}
	return pair, tx.BeginAuditTree(ctx, head)
}

// keepAuditKey creates one key if it does not exist. gone returns an error if the missing key existed before.
func (c Config) keepAuditKey(ctx context.Context, system keyserver.SystemID, name string,
	gone func(context.Context, *sqlstore.Tx) error, make func(context.Context, *sqlstore.Tx) ([]byte, error),
) error {
	_, err := c.Store.Setting(ctx, name)
	if !errors.Is(err, sqlstore.ErrNotFound) {
		return err
	}
	return c.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		_, err := tx.Setting(ctx, name)
		if !errors.Is(err, sqlstore.ErrNotFound) { // another replica created it first
			return err
		}
		if err := gone(ctx, tx); err != nil {
			return err
		}
		plain, err := make(ctx, tx)
		if err != nil {
			return err
		}
		defer clear(plain)
		wrapped, err := c.Keyring.Wrap(sqlstore.WrappedSettings[name], system, plain)
		if err != nil {
			return err
		}
		return tx.PutSetting(ctx, name, wrapped)
	})
}

// AuditSigner reads the key that signs the checkpoints of the audit tree.
func AuditSigner(ctx context.Context, c Config) (*tree.Signer, error) {
	return auditKey(ctx, c, sqlstore.SettingAuditKey, tree.ReadKey)
}

// WitnessSigner reads the key that cosigns the checkpoints of other logs.
func WitnessSigner(ctx context.Context, c Config) (*witness.Signer, error) {
	return auditKey(ctx, c, sqlstore.SettingWitnessKey, witness.ReadKey)
}

func auditKey[T any](ctx context.Context, c Config, name string, read func([]byte) (*T, error)) (*T, error) {
	system, err := sqlstore.SystemOf(ctx, c.Store)
	if err != nil {
		return nil, err
	}
	wrapped, err := c.Store.Setting(ctx, name)
	if err != nil {
		return nil, err
	}
	plain, err := c.Keyring.Unwrap(sqlstore.WrappedSettings[name], system, wrapped)
	if err != nil {
		return nil, err
	}
	defer clear(plain)
	return read(plain)
}
