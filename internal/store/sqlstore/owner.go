package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

const ownersQuery = `SELECT kind, id, owner, since, mac FROM owners`

// Owners reads the owner marks that a filter selects, in the order of ids. It
// ignores the limit of a filter with an ID.
func (r reads) Owners(ctx context.Context, f keyserver.OwnerFilter) ([]keyserver.OwnerMark, error) {
	if f.ID != nil {
		return r.owners(ctx, ownersQuery+` WHERE kind = $1 AND id = $2`, string(f.Kind), f.ID[:])
	}
	return r.owners(ctx, ownersQuery+` WHERE kind = $1 AND id > $2 ORDER BY id LIMIT $3`, string(f.Kind), f.After[:], f.Limit)
}

// Owner reads the owner mark of an object.
func (r reads) Owner(ctx context.Context, o keyserver.Object) (keyserver.OwnerMark, error) {
	list, err := r.Owners(ctx, keyserver.OwnerFilter{Kind: o.Kind, ID: &o.ID})
	if err == nil && len(list) == 0 {
		err = sqldb.ErrNotFound
	}
	if err != nil {
		return keyserver.OwnerMark{}, err
	}
	return list[0], nil
}

func (r reads) owners(ctx context.Context, query string, args ...any) ([]keyserver.OwnerMark, error) {
	list := []keyserver.OwnerMark{}
	err := r.sql.Each(ctx, query, args, func(row sqldb.Scanner) error {
		var m keyserver.OwnerMark
		var mac []byte
		if err := row.Scan(&m.Object.Kind, sqldb.IntoID(&m.Object.ID), &m.Owner, sqldb.IntoTime(&m.Since), &mac); err != nil {
			return err
		}
		list = append(list, m)
		return r.sql.CheckMAC(rowmac.Owner(m), mac)
	})
	return list, err
}

// ownersOfKind reads all owner marks of a kind, and so checks their MACs.
func (r reads) ownersOfKind(ctx context.Context, kind keyserver.ChangeKind) error {
	query, after := ownersQuery+` WHERE kind = $1 AND id >= $2 ORDER BY id LIMIT $3`, []byte{}
	for {
		list, err := r.owners(ctx, query, string(kind), after, rowPage)
		if err != nil || len(list) < rowPage {
			return err
		}
		query, after = ownersQuery+` WHERE kind = $1 AND id > $2 ORDER BY id LIMIT $3`, list[rowPage-1].Object.ID[:]
	}
}

// ownedObjects has a query for each kind of object that can have an owner mark. The
// query finds the object $1.
var ownedObjects = map[keyserver.ChangeKind]string{
	keyserver.ChangeRole:               `SELECT 1 FROM roles WHERE id = $1`,
	keyserver.ChangePrincipal:          `SELECT 1 FROM principals WHERE id = $1`,
	keyserver.ChangeKey:                `SELECT 1 FROM stored_keys WHERE id = $1`,
	keyserver.ChangeTrustedCA:          `SELECT 1 FROM trusted_cas WHERE id = $1`,
	keyserver.ChangeTrustedServer:      `SELECT 1 FROM trusted_servers WHERE system_id = $1`,
	keyserver.ChangePrincipalTrust:     `SELECT 1 FROM principal_trusts WHERE id = $1`,
	keyserver.ChangeACLTemplate:        `SELECT 1 FROM acl_templates WHERE id = $1`,
	keyserver.ChangeTemplatedDirectory: `SELECT 1 FROM templated_directories WHERE id = $1`,
}

// OwnedObject returns ErrNotFound if an object does not exist.
func (r reads) OwnedObject(ctx context.Context, o keyserver.Object) error {
	query, known := ownedObjects[o.Kind]
	if !known {
		return fmt.Errorf("objects of the kind %q cannot have owner marks", o.Kind)
	}
	var key any = o.ID[:]
	if o.Kind == keyserver.ChangeTrustedServer {
		n := o.ID.Uint64()
		if n > math.MaxUint32 {
			return sqldb.ErrNotFound
		}
		key = int64(n)
	}
	var one int
	return r.sql.Row(ctx, query, []any{key}, &one)
}

// PutOwner stores or replaces the owner mark of an object.
func (tx *Tx) PutOwner(ctx context.Context, m keyserver.OwnerMark) error {
	_, err := tx.Owner(ctx, m.Object)
	action := keyserver.Updated
	if errors.Is(err, sqldb.ErrNotFound) {
		action, err = keyserver.Created, nil
	}
	if err != nil {
		return err
	}
	_, err = tx.sql.Exec(ctx, `INSERT INTO owners (kind, id, owner, since, mac) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (kind, id) DO UPDATE SET owner = excluded.owner, since = excluded.since, mac = excluded.mac`,
		string(m.Object.Kind), m.Object.ID[:], m.Owner, m.Since.UnixMicro(), tx.sql.MAC(rowmac.Owner(m)))
	if err != nil {
		return err
	}
	tx.changes.Record(m.Object.Kind.Owner(), m.Object.ID, action)
	return nil
}

// DeleteOwner deletes the owner mark of an object. It returns ErrNotFound if there
// is none.
func (tx *Tx) DeleteOwner(ctx context.Context, o keyserver.Object) error {
	if err := tx.sql.ExecOne(ctx, `DELETE FROM owners WHERE kind = $1 AND id = $2`, string(o.Kind), o.ID[:]); err != nil {
		return err
	}
	tx.changes.Record(o.Kind.Owner(), o.ID, keyserver.Deleted)
	return nil
}

// settleOwners deletes the owner marks of objects that the transaction has deleted.
// It stores the mark in ctx for objects that the transaction has created. It finds
// these objects in the recorded changes.
func (tx *Tx) settleOwners(ctx context.Context) error {
	mark, marks := keyserver.MarkOf(ctx)
	for _, c := range slices.Clone(tx.changes.Changes()) {
		o := keyserver.Object{Kind: c.Kind, ID: c.ID}
		switch {
		case c.Action == keyserver.Deleted && o.Owned():
			if err := tx.DeleteOwner(ctx, o); err != nil && !errors.Is(err, sqldb.ErrNotFound) {
				return err
			}
		case c.Action == keyserver.Created && marks && c.Kind == mark.Object.Kind:
			if err := tx.PutOwner(ctx, keyserver.OwnerMark{Object: o, Owner: mark.Owner, Since: mark.Since}); err != nil {
				return err
			}
		}
	}
	return nil
}
