package bootstrap

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore"
)

// settingAuditKey is the key that signs the checkpoints of the audit tree.
const settingAuditKey = "auditKey"

// wrapIDAudit is under which that key is wrapped.
var wrapIDAudit = keyserver.IDFromUint64(3)

// keepAuditKey makes the key of the audit tree where there is none yet: at the first
// start, and at the first on a database of before there was a tree.
func (c Config) keepAuditKey(ctx context.Context, system keyserver.SystemID) error {
	_, err := c.Store.Setting(ctx, settingAuditKey)
	if !errors.Is(err, sqlstore.ErrNotFound) {
		return err
	}
	return c.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		_, err := tx.Setting(ctx, settingAuditKey)
		if !errors.Is(err, sqlstore.ErrNotFound) { // another replica was faster
			return err
		}
		if head, err := tx.AuditTree(ctx); err != nil || head.Size > 0 {
			return errors.Join(err, errors.New("the database has a tree over its audit trail, and not the key that signed it: somebody took the setting "+
				settingAuditKey+" away; put it back from a backup, nothing was written"))
		}
		plain, err := tree.NewKey(c.Random, tree.Origin(c.ServerName, system))
		if err != nil {
			return err
		}
		defer clear(plain)
		wrapped, err := c.Custodian.Wrap(wrapIDAudit, system, plain)
		if err != nil {
			return err
		}
		return tx.PutSetting(ctx, settingAuditKey, wrapped)
	})
}

// AuditSigner reads the key that signs the checkpoints of the audit tree.
func AuditSigner(ctx context.Context, c Config) (*tree.Signer, error) {
	system, err := systemOf(ctx, c.Store)
	if err != nil {
		return nil, err
	}
	wrapped, err := c.Store.Setting(ctx, settingAuditKey)
	if err != nil {
		return nil, err
	}
	plain, err := c.Custodian.Unwrap(wrapIDAudit, system, wrapped)
	if err != nil {
		return nil, err
	}
	defer clear(plain)
	return tree.ReadKey(plain)
}
