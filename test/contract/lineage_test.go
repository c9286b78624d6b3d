package contract

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// uses waits until a key lineage uses a generation: a row written directly into the database reaches a replica
// within a second.
func (s *subject) uses(t *testing.T, path, line string, generation float64) rig.Answer {
	t.Helper()
	var a rig.Answer
	rig.Soon(t, "the successor is known", func() bool {
		a = s.OK(t, s.AsAdmin(t), "POST", path, rig.Object{"lineage": line, "data": b64([]byte("a text"))})
		return a.Body["generation"] == generation
	})
	return a
}

// succeed stores the next key of a lineage with a state. Its ACL is that of the newest key.
func (in intruder) succeed(t *testing.T, s *subject, line string, state keyserver.KeyState) (link string) {
	t.Helper()
	ctx := t.Context()
	where := sqlstore.Config{URL: in.where.DatabaseURL, Clock: time.Now}
	if where.URL == "" { // only one process can open the embedded database
		where.Dir = in.where.DataDir
		s.Stop(t)
		defer s.Restart(t)
	}
	store, err := sqlstore.Open(ctx, where)
	rig.Must(t, err)
	defer func() { rig.Must(t, store.Close()) }()
	kek, err := keyring.EnsureFileKey(in.where.DataDir)
	rig.Must(t, err)
	keeper, err := keyring.Open(ctx, kek)
	rig.Must(t, err)
	defer func() { rig.Must(t, keeper.Close()) }()
	ring, err := keyring.Existing(ctx, keeper, store.Setting)
	rig.Must(t, err)
	store.UseRowKey(ring.RowKey())

	system, first, _ := keyserver.HiddenLink(unb64(t, line)).Split()
	keys, err := store.KeyLineage(ctx, first)
	rig.Must(t, err)
	next := keys[len(keys)-1]
	_, acl, err := store.KeyWithACL(ctx, next.ID)
	rig.Must(t, err)
	draw := func() keyserver.ID {
		id, err := values.NewID(rand.Reader)
		rig.Must(t, err)
		return id
	}
	next.ID, next.ACL = draw(), draw()
	for i := range acl.Entries {
		acl.Entries[i].ID = draw()
	}
	next.Life = keyserver.KeyLife{State: state, Lineage: first, Generation: next.Life.Generation + 1}
	material := make([]byte, next.KeyBytes)
	_, _ = rand.Read(material) // never fails
	next.Wrapped, err = ring.Wrap(next.ID, system, material)
	rig.Must(t, err)
	rig.Must(t, store.Update(ctx, func(tx *sqlstore.Tx) error { return tx.InsertKey(ctx, next, acl.Entries...) }))
	return values.NewHiddenLink(system, next.ID).Base64()
}
