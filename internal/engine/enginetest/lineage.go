package enginetest

import (
	"context"
	"crypto/rand"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// AddSuccessor stores the next key of a lineage in the given state, with the ACL of the newest key.
func (f *Fixture) AddSuccessor(t testing.TB, line keyserver.HiddenLink, state keyserver.KeyState) keyserver.HiddenLink {
	t.Helper()
	link, err := f.TryAddSuccessor(line, state)
	fatal(t, err)
	return link
}

// TryAddSuccessor is AddSuccessor for goroutines that must not end the test.
func (f *Fixture) TryAddSuccessor(line keyserver.HiddenLink, state keyserver.KeyState) (keyserver.HiddenLink, error) {
	ctx := context.Background()
	_, first, _ := line.Split()
	keys, err := f.Store.KeyLineage(ctx, first)
	if err != nil {
		return "", err
	}
	newest := keys[len(keys)-1]
	_, acl, err := f.Store.KeyWithACL(ctx, newest.ID)
	if err != nil {
		return "", err
	}
	next := newest
	material := make([]byte, keyserver.Algorithms[newest.Algorithm].MintLen)
	_, _ = rand.Read(material) // never fails
	for _, id := range []*keyserver.ID{&next.ID, &next.ACL} {
		if *id, err = values.NewID(rand.Reader); err != nil {
			return "", err
		}
	}
	for i := range acl.Entries {
		if acl.Entries[i].ID, err = values.NewID(rand.Reader); err != nil {
			return "", err
		}
	}
	next.Life = keyserver.KeyLife{State: state, Lineage: first, Generation: newest.Life.Generation + 1}
	next.KeyBytes = len(material)
	if next.Wrapped, err = f.Config.Keyring.Wrap(next.ID, f.Prepared.System, material); err != nil {
		return "", err
	}
	if state == keyserver.KeyDestroyed {
		next.Wrapped = nil
	}
	err = f.Store.Update(ctx, func(tx *sqlstore.Tx) error { return tx.InsertKey(ctx, next, acl.Entries...) })
	return values.NewHiddenLink(f.Prepared.System, next.ID), err
}
