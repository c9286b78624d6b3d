package sqlstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// TestOwnerConformance checks that SQLite and PostgreSQL behave the same with owner
// marks.
func TestOwnerConformance(t *testing.T) {
	onEach(t, migratedKinds, map[string]func(*testing.T, newDatabase){
		"Refusals": testOwnerRefusals, "Marks": testOwners, "Deletions": testOwnersGoWithTheirObjects,
	})
}

func object(kind keyserver.ChangeKind, n uint64) keyserver.Object {
	return keyserver.Object{Kind: kind, ID: id(n)}
}

func mark(kind keyserver.ChangeKind, n uint64, owner string) keyserver.OwnerMark {
	return keyserver.OwnerMark{Object: object(kind, n), Owner: owner, Since: at(3)}
}

func putOwner(kind keyserver.ChangeKind, n uint64, owner string) write {
	return func(ctx context.Context, tx *sqlstore.Tx) error { return tx.PutOwner(ctx, mark(kind, n, owner)) }
}

func deleteOwner(kind keyserver.ChangeKind, n uint64) write {
	return func(ctx context.Context, tx *sqlstore.Tx) error { return tx.DeleteOwner(ctx, object(kind, n)) }
}

func testOwnerRefusals(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	update(t, s, insertRole(role(10, "role")), insertPrincipal(transport(11), ""), insertPeer(peer(7, 11)))
	if err := tryUpdate(t, s, deleteOwner(keyserver.ChangeRole, 10)); !errors.Is(err, sqlstore.ErrNotFound) {
		t.Errorf("a mark that is not there was deleted: %v", err)
	}
	for _, o := range []keyserver.Object{
		object(keyserver.ChangeRole, 11), object(keyserver.ChangePrincipal, 10), // the id belongs to the other kind
		object(keyserver.ChangeTrustedServer, 8), object(keyserver.ChangeTrustedServer, 1<<32+7), object(keyserver.ChangeTrustedServer, 1<<63+7),
	} {
		if err := s.OwnedObject(t.Context(), o); !errors.Is(err, sqlstore.ErrNotFound) {
			t.Errorf("%s is there: %v", o, err)
		}
	}
	if err := s.OwnedObject(t.Context(), object(keyserver.ChangeSession, 10)); err == nil || errors.Is(err, sqlstore.ErrNotFound) {
		t.Errorf("sessions have no marks: %v", err)
	}
}

func testOwners(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	head, err := s.ChangeHead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	update(t, s, putOwner(keyserver.ChangeRole, 3, "c"), putOwner(keyserver.ChangeRole, 1, "a"), putOwner(keyserver.ChangeRole, 2, "b"), putOwner(keyserver.ChangeKey, 1, "ü"))
	update(t, s, putOwner(keyserver.ChangeRole, 2, "other"))
	update(t, s, deleteOwner(keyserver.ChangeRole, 3))
	one := id(1)
	for name, tc := range map[string]struct {
		f    keyserver.OwnerFilter
		want []keyserver.OwnerMark
	}{
		"Kind":    {keyserver.OwnerFilter{Kind: keyserver.ChangeRole, Limit: 9}, []keyserver.OwnerMark{mark(keyserver.ChangeRole, 1, "a"), mark(keyserver.ChangeRole, 2, "other")}},
		"Page":    {keyserver.OwnerFilter{Kind: keyserver.ChangeRole, Limit: 1}, []keyserver.OwnerMark{mark(keyserver.ChangeRole, 1, "a")}},
		"Next":    {keyserver.OwnerFilter{Kind: keyserver.ChangeRole, After: one, Limit: 1}, []keyserver.OwnerMark{mark(keyserver.ChangeRole, 2, "other")}},
		"One":     {keyserver.OwnerFilter{Kind: keyserver.ChangeKey, ID: &one}, []keyserver.OwnerMark{mark(keyserver.ChangeKey, 1, "ü")}},
		"NoneYet": {keyserver.OwnerFilter{Kind: keyserver.ChangePrincipal, Limit: 9}, []keyserver.OwnerMark{}},
	} {
		got, err := s.Owners(t.Context(), tc.f)
		if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	page, err := s.Changes(t.Context(), head, 100)
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, c := range page.Changes {
		seen = append(seen, string(c.Kind)+" "+string(c.Action))
	}
	if want := []string{
		"roleOwner created", "roleOwner created", "roleOwner created", "keyOwner created", "roleOwner updated", "roleOwner deleted",
	}; !slices.Equal(seen, want) {
		t.Errorf("the feed has %v, want %v", seen, want)
	}
}

// testOwnersGoWithTheirObjects checks that the deletion of an object deletes its
// owner mark, so that a new object with the same id has none. Objects of other
// kinds with the same id keep their marks.
func testOwnersGoWithTheirObjects(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	const n = 7 // the same id for all objects
	template := keyserver.ACLTemplate{ID: id(n), Name: "template", Members: []keyserver.TemplateMember{{Principal: ref(20), Rights: keyserver.AllRights, MaxUsage: keyserver.NoUsageLimit}}}
	type life struct{ make, end []write }
	lives := map[keyserver.ChangeKind]life{
		keyserver.ChangeRole: {
			[]write{insertRole(role(n, "role"))},
			[]write{func(ctx context.Context, tx *sqlstore.Tx) error { return tx.DeleteRole(ctx, id(n)) }},
		},
		keyserver.ChangePrincipal: {
			[]write{insertPrincipal(principal(n, "principal"), "")},
			[]write{func(ctx context.Context, tx *sqlstore.Tx) error { return tx.DeletePrincipal(ctx, id(n)) }},
		},
		keyserver.ChangeTrustedCA: {
			[]write{insertCA(ca(n, "ca"))},
			[]write{func(ctx context.Context, tx *sqlstore.Tx) error { return tx.DeleteTrustedCA(ctx, id(n)) }},
		},
		keyserver.ChangeTrustedServer: {
			[]write{insertPrincipal(transport(10), ""), insertPeer(peer(n, 10))},
			[]write{func(ctx context.Context, tx *sqlstore.Tx) error { return tx.DeleteTrustedServer(ctx, n) }},
		},
		keyserver.ChangePrincipalTrust: {
			[]write{insertTrust(n, 20, 2, keyserver.Expose)},
			[]write{func(ctx context.Context, tx *sqlstore.Tx) error { return tx.DeletePrincipalTrust(ctx, id(n)) }},
		},
		keyserver.ChangeACLTemplate: {
			[]write{insertTemplate(template)},
			[]write{func(ctx context.Context, tx *sqlstore.Tx) error { return tx.DeleteACLTemplate(ctx, id(n)) }},
		},
		keyserver.ChangeTemplatedDirectory: {
			[]write{insertTemplate(keyserver.ACLTemplate{ID: id(90), Name: "of the directory", Members: template.Members}), insertDirectory(n, "/a/", 90)},
			[]write{
				func(ctx context.Context, tx *sqlstore.Tx) error { return tx.DeleteTemplatedDirectory(ctx, id(n)) },
				func(ctx context.Context, tx *sqlstore.Tx) error { return tx.DeleteACLTemplate(ctx, id(90)) },
			},
		},
		keyserver.ChangeKey: {[]write{insertKey(key(n), entry(40, 20))}, nil}, // a key is destroyed, but its object stays
	}
	update(t, s, insertPrincipal(principal(20, "alice"), ""))
	for _, kind := range keyserver.OwnedKinds {
		l, known := lives[kind]
		if !known {
			t.Fatalf("nobody knows how a %s ends", kind)
		}
		if err := s.OwnedObject(t.Context(), object(kind, n)); !errors.Is(err, sqlstore.ErrNotFound) {
			t.Errorf("there is a %s before it is made: %v", kind, err)
		}
		update(t, s, append(l.make, putOwner(kind, n, "owner"))...)
		if err := s.OwnedObject(t.Context(), object(kind, n)); err != nil {
			t.Errorf("there is no %s: %v", kind, err)
		}
	}
	for i, kind := range keyserver.OwnedKinds {
		l := lives[kind]
		if l.end == nil {
			continue
		}
		update(t, s, l.end...)
		if _, err := s.Owner(t.Context(), object(kind, n)); !errors.Is(err, sqlstore.ErrNotFound) {
			t.Errorf("the mark of a %s that is gone: %v", kind, err)
		}
		for _, other := range keyserver.OwnedKinds[i+1:] {
			if _, err := s.Owner(t.Context(), object(other, n)); err != nil {
				t.Fatalf("the mark of a %s went with a %s: %v", other, kind, err)
			}
		}
		update(t, s, l.make...)
		if m, err := s.Owner(t.Context(), object(kind, n)); !errors.Is(err, sqlstore.ErrNotFound) {
			t.Errorf("a new %s has the mark of an earlier one: %v, %v", kind, m, err)
		}
	}
	if _, err := s.Owner(t.Context(), object(keyserver.ChangeKey, n)); err != nil {
		t.Errorf("the mark of the key: %v", err)
	}
	// The deletion of a peer also deletes its transport principal and that
	// principal's mark.
	update(t, s, putOwner(keyserver.ChangePrincipal, 10, "owner"), lives[keyserver.ChangeTrustedServer].end[0])
	if _, err := s.Owner(t.Context(), object(keyserver.ChangePrincipal, 10)); !errors.Is(err, sqlstore.ErrNotFound) {
		t.Errorf("the mark of a transport principal that is gone: %v", err)
	}
}
