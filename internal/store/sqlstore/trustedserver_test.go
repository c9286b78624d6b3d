package sqlstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// TestTrustConformance checks that SQLite and PostgreSQL behave the same with peers
// and principal trusts.
func TestTrustConformance(t *testing.T) {
	onEach(t, migratedKinds, map[string]func(*testing.T, newDatabase){
		"Refusals":        testTrustRefusals,
		"TrustedServers":  testTrustedServers,
		"PurgedEntries":   testPurgedEntries,
		"ManyKeys":        testPurgeOfManyKeys,
		"PrincipalTrusts": testPrincipalTrusts,
	})
}

func peer(system keyserver.SystemID, transport uint64) keyserver.TrustedServer {
	c := ca(uint64(system)+7000, "leaf")
	c.Status = keyserver.StatusTrustedServer
	return keyserver.TrustedServer{
		System: system, Name: "peer.example", Port: 65535, FriendlyName: "ü", Description: "", Transport: id(transport),
		Roles: ids(), Certificate: c, Chain: []byte{0x30, 0},
	}
}

func transport(n uint64) keyserver.Principal {
	return keyserver.Principal{ID: id(n), System: 1, Type: keyserver.CertificatePrincipal, Name: "/CN=" + id(n).Hex(), Roles: ids(), Groups: ids()}
}

func insertPeer(s keyserver.TrustedServer) write {
	return func(ctx context.Context, tx *sqlstore.Tx) error { return tx.InsertTrustedServer(ctx, s) }
}

func insertTrust(n, who uint64, server keyserver.SystemID, flag keyserver.TrustFlag) write {
	return func(ctx context.Context, tx *sqlstore.Tx) error {
		return tx.InsertPrincipalTrust(ctx, keyserver.PrincipalTrust{ID: id(n), Principal: id(who), Server: server, Flag: flag})
	}
}

func testTrustRefusals(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	update(t, s, insertPrincipal(transport(10), ""), insertPrincipal(transport(11), ""),
		insertPeer(peer(2, 10)), insertTrust(20, 30, 2, keyserver.Expose))
	text := "x"
	cases := map[string]struct {
		reason string
		write  write
		want   error
	}{
		"SystemID":    {"a system id is registered once", insertPeer(peer(2, 11)), sqlstore.ErrDuplicate},
		"Transport":   {"a transport principal stands for one peer", insertPeer(peer(3, 10)), sqlstore.ErrDuplicate},
		"NoTransport": {"and it exists", insertPeer(peer(3, 99)), sqlstore.ErrNotFound},
		"ChangeNobody": {"only a peer has a record", func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.UpdateTrustedServer(ctx, keyserver.TrustedServerChange{System: 3, Description: &text})
		}, sqlstore.ErrNotFound},
		"ReplaceNobody": {"only a record can be replaced", func(ctx context.Context, tx *sqlstore.Tx) error { return tx.ReplaceTrustedServer(ctx, peer(3, 11)) }, sqlstore.ErrNotFound},
		"RenameNobody":  {"only a principal has a name", func(ctx context.Context, tx *sqlstore.Tx) error { return tx.RenamePrincipal(ctx, id(99), "x") }, sqlstore.ErrNotFound},
		"TakenName": {"a name is one principal's of a type", func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.RenamePrincipal(ctx, id(10), transport(11).Name)
		}, sqlstore.ErrDuplicate},
		"RemoveNobody": {"only a peer can be removed", func(ctx context.Context, tx *sqlstore.Tx) error { return tx.DeleteTrustedServer(ctx, 3) }, sqlstore.ErrNotFound},
		"TrustID":      {"an id names one row", insertTrust(20, 31, 2, keyserver.Expose), sqlstore.ErrDuplicate},
		"TrustTwice":   {"one row for a principal and a peer", insertTrust(21, 30, 2, keyserver.Restrict), sqlstore.ErrDuplicate},
		"FlagOfNone": {"a flag belongs to a row", func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.SetPrincipalTrustFlag(ctx, keyserver.PrincipalTrustChange{ID: id(21), Flag: 1})
		}, sqlstore.ErrNotFound},
		"DeleteNone": {"only a row can be deleted", func(ctx context.Context, tx *sqlstore.Tx) error { return tx.DeletePrincipalTrust(ctx, id(21)) }, sqlstore.ErrNotFound},
	}
	head, err := s.ChangeHead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := tryUpdate(t, s, tc.write); !errors.Is(err, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
			}
		})
	}
	if now, err := s.ChangeHead(t.Context()); err != nil || now != head {
		t.Errorf("refused writes are in the change feed: %d after %d, %v", now, head, err)
	}
	if _, err := s.TrustedServer(t.Context(), 3); !errors.Is(err, sqlstore.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func testTrustedServers(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	ctx := t.Context()
	if list, err := s.TrustedServers(ctx); err != nil || list == nil || len(list) != 0 {
		t.Fatalf("at first: %v, %v", list, err)
	}
	big, small := peer(4294967295, 11), peer(0, 10)
	small.Roles = ids(5, 6)
	holder := transport(10)
	holder.Roles = ids(5, 6)
	update(t, s, insertRole(role(5, "a")), insertRole(role(6, "b")), insertPrincipal(holder, ""), insertPrincipal(transport(11), ""),
		insertPeer(big), insertPeer(small), insertTrust(20, 30, 0, keyserver.Expose))
	if list, err := s.TrustedServers(ctx); err != nil || !cmp.Equal(list, []keyserver.TrustedServer{small, big}) {
		t.Errorf("%v: %s", err, cmp.Diff([]keyserver.TrustedServer{small, big}, list))
	}
	description := "only this"
	update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error {
		return tx.UpdateTrustedServer(ctx, keyserver.TrustedServerChange{System: 0, Description: &description})
	})
	small.Description = description
	if got, err := s.TrustedServer(ctx, 0); err != nil || !cmp.Equal(got, small) {
		t.Errorf("%v: %s", err, cmp.Diff(small, got))
	}
	testReplacedServer(t, s, small)
	before, err := s.ChangeHead(ctx)
	if err != nil {
		t.Fatal(err)
	}
	update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error { return tx.DeleteTrustedServer(ctx, 0) })
	page, err := s.Changes(ctx, before, 10)
	want := []keyserver.Change{
		{Seq: before + 1, Kind: keyserver.ChangeTrustedServer, Action: keyserver.Deleted},
		{Seq: before + 2, Kind: keyserver.ChangePrincipal, ID: id(10), Action: keyserver.Deleted},
	}
	if err != nil || !cmp.Equal(page.Changes, want) {
		t.Errorf("%v: %s", err, cmp.Diff(want, page.Changes))
	}
	if registered, err := s.IsTrustedServer(ctx, 0); err != nil || registered {
		t.Errorf("still registered, %v", err)
	}
	if _, err := s.Principal(ctx, id(10)); !errors.Is(err, sqlstore.ErrNotFound) {
		t.Errorf("the transport principal of a removed peer answers %v", err)
	}
	if n, err := s.PrincipalTrustCount(ctx, keyserver.PrincipalTrustFilter{}); err != nil || n != 1 {
		t.Errorf("%d principal trusts outlived the peer, %v", n, err)
	}
}

// testReplacedServer checks that every field of a peer is replaced except the
// transport principal.
func testReplacedServer(t *testing.T, s *sqlstore.Store, old keyserver.TrustedServer) {
	t.Helper()
	other := peer(77, 12)
	other.System, other.Name, other.Port, other.FriendlyName, other.Description, other.Chain = old.System, "192.0.2.9", 1, "f", "d", []byte{1}
	before, err := s.ChangeHead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error {
		if err := tx.RenamePrincipal(ctx, old.Transport, "/CN=renamed"); err != nil {
			return err
		}
		return tx.ReplaceTrustedServer(ctx, other)
	})
	other.Transport, other.Roles = old.Transport, old.Roles
	if got, err := s.TrustedServer(t.Context(), old.System); err != nil || !cmp.Equal(got, other) {
		t.Errorf("%v: %s", err, cmp.Diff(other, got))
	}
	if p, err := s.Principal(t.Context(), old.Transport); err != nil || p.Name != "/CN=renamed" {
		t.Errorf("renamed: %+v, %v", p, err)
	}
	page, err := s.Changes(t.Context(), before, 10)
	want := []keyserver.Change{
		{Seq: before + 1, Kind: keyserver.ChangePrincipal, ID: old.Transport, Action: keyserver.Updated},
		{Seq: before + 2, Kind: keyserver.ChangeTrustedServer, ID: values.IDFromUint64(uint64(old.System)), Action: keyserver.Updated},
	}
	if err != nil || !cmp.Equal(page.Changes, want) {
		t.Errorf("%v: %s", err, cmp.Diff(want, page.Changes))
	}
}

func foreign(n uint64, system keyserver.SystemID, who uint64) keyserver.ACLEntry {
	e := entry(n, who)
	e.Principal.System = system
	e.MaxUsage, e.Used = 9, 3
	return e
}

func putEntry(key uint64, e keyserver.ACLEntry) write {
	return func(ctx context.Context, tx *sqlstore.Tx) error {
		e.ACL = id(key + 1000)
		return tx.PutACLEntry(ctx, e)
	}
}

func testPurgedEntries(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	ctx := t.Context()
	update(t, s, insertKey(key(1), entry(100, 9)), insertKey(key(2), entry(101, 9)),
		putEntry(1, foreign(102, 7, 50)), putEntry(1, foreign(103, 7, 51)), putEntry(1, foreign(104, 8, 50)))
	whole, err := s.ACL(ctx, id(1))
	if err != nil {
		t.Fatal(err)
	}
	move := func(what string, n int, move func(*sqlstore.Tx) (int, error)) []keyserver.Change {
		t.Helper()
		head, err := s.ChangeHead(ctx)
		if err != nil {
			t.Fatal(err)
		}
		update(t, s, func(_ context.Context, tx *sqlstore.Tx) error {
			if got, err := move(tx); err != nil || got != n {
				t.Errorf("%s moved %d, %v; want %d", what, got, err, n)
			}
			return nil
		})
		page, err := s.Changes(ctx, head, 10)
		if err != nil {
			t.Fatal(err)
		}
		return page.Changes
	}
	purge := func(tx *sqlstore.Tx) (int, error) { return tx.PurgeACLEntries(ctx, 7) }
	resurrect := func(tx *sqlstore.Tx) (int, error) { return tx.RestoreACLEntries(ctx, 7) }
	onlyKeyOne := func(changes []keyserver.Change) {
		t.Helper()
		if len(changes) != 1 || changes[0].Kind != keyserver.ChangeKey || changes[0].ID != id(1) {
			t.Errorf("the feed says %v, want key 1 once", changes)
		}
	}

	move("resurrecting nothing", 0, resurrect)
	onlyKeyOne(move("the purge", 2, purge))
	acl, err := s.ACL(ctx, id(1))
	if err != nil {
		t.Fatal(err)
	}
	left := slices.DeleteFunc(slices.Clone(whole.Entries), func(e keyserver.ACLEntry) bool { return e.Principal.System == 7 })
	if !cmp.Equal(acl.Entries, left) {
		t.Error(cmp.Diff(left, acl.Entries))
	}
	if changes := move("purging nothing", 0, purge); len(changes) != 0 {
		t.Errorf("the feed says %v", changes)
	}
	onlyKeyOne(move("the resurrection", 2, resurrect))
	if acl, err := s.ACL(ctx, id(1)); err != nil || !cmp.Equal(acl, whole) {
		t.Errorf("an entry came back otherwise than it went, %v: %s", err, cmp.Diff(whole, acl))
	}
	move("resurrecting twice", 0, resurrect)

	// An entry that was added after the purge is newer than the purged one.
	move("the second purge", 2, purge)
	newer := foreign(105, 7, 50)
	newer.ACL, newer.Rights = id(1001), keyserver.Read
	update(t, s, putEntry(1, newer))
	move("the second resurrection", 1, resurrect)
	acl, err = s.ACL(ctx, id(1))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := acl.Entry(newer.Principal); !cmp.Equal(got, newer) {
		t.Error(cmp.Diff(newer, got))
	}
}

func testPurgeOfManyKeys(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	ctx := t.Context()
	const keys = 1001
	update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error {
		for n := uint64(1); n <= keys; n++ {
			k := key(n)
			k.ACL = id(n + 100_000)
			if err := tx.InsertKey(ctx, k, foreign(n+200_000, 7, 50)); err != nil {
				return err
			}
		}
		return nil
	})
	head, err := s.ChangeHead(ctx)
	if err != nil {
		t.Fatal(err)
	}
	update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error {
		if n, err := tx.PurgeACLEntries(ctx, 7); err != nil || n != keys {
			t.Errorf("purged %d, %v", n, err)
		}
		return nil
	})
	page, err := s.Changes(ctx, head, 1000)
	if want := []keyserver.Change{{Seq: head + 1, Kind: keyserver.ChangeKey, Action: keyserver.Updated}}; err != nil || !cmp.Equal(page.Changes, want) {
		t.Errorf("%v: %s", err, cmp.Diff(want, page.Changes))
	}
}

func testPrincipalTrusts(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	ctx := t.Context()
	row := func(n, who uint64, server keyserver.SystemID, flag keyserver.TrustFlag) keyserver.PrincipalTrust {
		return keyserver.PrincipalTrust{ID: id(n), Principal: id(who), Server: server, Flag: flag}
	}
	update(t, s, insertTrust(3, 31, 2, keyserver.Expose), insertTrust(1, 30, 2, keyserver.Expose), insertTrust(2, 30, 4294967295, keyserver.Restrict))
	one, two, three := row(1, 30, 2, keyserver.Expose), row(2, 30, 4294967295, keyserver.Restrict), row(3, 31, 2, keyserver.Expose)
	server, far := keyserver.SystemID(2), keyserver.SystemID(9)
	cases := map[string]struct {
		filter keyserver.PrincipalTrustFilter
		want   []keyserver.PrincipalTrust
		count  int
	}{
		"All":       {keyserver.PrincipalTrustFilter{}, []keyserver.PrincipalTrust{one, two, three}, 3},
		"Window":    {keyserver.PrincipalTrustFilter{Limit: 1, Offset: 1}, []keyserver.PrincipalTrust{two}, 3},
		"PastEnd":   {keyserver.PrincipalTrustFilter{Limit: 9, Offset: 3}, []keyserver.PrincipalTrust{}, 3},
		"ID":        {keyserver.PrincipalTrustFilter{ID: &two.ID}, []keyserver.PrincipalTrust{two}, 1},
		"Principal": {keyserver.PrincipalTrustFilter{Principal: &one.Principal}, []keyserver.PrincipalTrust{one, two}, 2},
		"Server":    {keyserver.PrincipalTrustFilter{Server: &server}, []keyserver.PrincipalTrust{one, three}, 2},
		"Both":      {keyserver.PrincipalTrustFilter{Server: &server, Principal: &three.Principal}, []keyserver.PrincipalTrust{three}, 1},
		"None":      {keyserver.PrincipalTrustFilter{Server: &far}, []keyserver.PrincipalTrust{}, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got, err := s.PrincipalTrusts(ctx, tc.filter); err != nil || !cmp.Equal(got, tc.want) {
				t.Errorf("%v: %s", err, cmp.Diff(tc.want, got))
			}
			if n, err := s.PrincipalTrustCount(ctx, tc.filter); err != nil || n != tc.count {
				t.Errorf("counted %d, %v; want %d", n, err, tc.count)
			}
		})
	}
	update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error {
		if err := tx.SetPrincipalTrustFlag(ctx, keyserver.PrincipalTrustChange{ID: two.ID, Flag: keyserver.Expose}); err != nil {
			return err
		}
		return tx.DeletePrincipalTrust(ctx, one.ID)
	})
	two.Flag = keyserver.Expose
	if got, err := s.PrincipalTrusts(ctx, keyserver.PrincipalTrustFilter{}); err != nil || !cmp.Equal(got, []keyserver.PrincipalTrust{two, three}) {
		t.Errorf("%v: %v", err, got)
	}
}
