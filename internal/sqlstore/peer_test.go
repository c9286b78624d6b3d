package sqlstore_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore"
)

// TestPeerConformance holds both databases to one behaviour with the calls of
// peers and the entries of their principals.
func TestPeerConformance(t *testing.T) {
	for name, make := range map[string]newDatabase{"SQLite": inDirectory, "PostgreSQL": onServer} {
		t.Run(name, func(t *testing.T) {
			t.Run("Calls", func(t *testing.T) { testPeerCalls(t, make) })
			t.Run("ClosedEntries", func(t *testing.T) { testClosedEntries(t, make) })
		})
	}
}

func testPeerCalls(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	remember := func(n byte, at time.Time) {
		t.Helper()
		update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.RememberPeerCall(ctx, keyserver.CallKey{n}, at, at.Add(time.Minute))
		})
	}
	known := func() (all []byte) {
		t.Helper()
		for n := range byte(20) {
			if ok, err := s.PeerCallKnown(t.Context(), keyserver.CallKey{n}); err != nil {
				t.Fatal(err)
			} else if ok {
				all = append(all, n)
			}
		}
		return all
	}
	for n := range byte(10) {
		remember(n, now)
	}
	if got := known(); len(got) != 10 {
		t.Errorf("known: %v", got)
	}
	remember(10, now.Add(59*time.Second))
	if got := known(); len(got) != 11 {
		t.Errorf("none has expired, known: %v", got)
	}
	remember(11, now.Add(time.Minute)) // some of the ten expired ones go, the rest with the next
	remember(12, now.Add(time.Minute))
	if got := known(); !slices.Equal(got, []byte{10, 11, 12}) {
		t.Errorf("ten have expired, known: %v", got)
	}
	err := s.Update(t.Context(), func(tx *sqlstore.Tx) error {
		return tx.RememberPeerCall(t.Context(), keyserver.CallKey{11}, now, now)
	})
	if err == nil {
		t.Error("a call was remembered twice")
	}
}

func testClosedEntries(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	now := keyserver.StampOf(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	earlier := keyserver.StampOf(time.Date(2026, 2, 1, 12, 0, 0, 0, time.UTC))
	later := keyserver.StampOf(time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC))
	who := keyserver.PrincipalRef{System: 7, ID: id(70)}
	ends := []keyserver.Stamp{{}, earlier, later}
	update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error {
		for i, end := range ends {
			n := uint64(i)
			k := sqlstore.KeyRecord{ID: id(100 + n), Algorithm: keyserver.AES256, KeyBytes: 32, Wrapped: []byte{1}, ACL: id(200 + n), CreatedAt: time.Now()}
			other := keyserver.ACLEntry{ID: id(400 + n), ACL: k.ACL, Principal: keyserver.PrincipalRef{System: 8, ID: who.ID}, Rights: keyserver.Read, MaxUsage: -1}
			entry := keyserver.ACLEntry{ID: id(300 + n), ACL: k.ACL, Principal: who, Rights: keyserver.Read, MaxUsage: -1, End: end}
			if err := tx.InsertKey(ctx, k, entry, other); err != nil {
				return err
			}
		}
		return nil
	})
	before, err := s.Changes(t.Context(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	open := func(at keyserver.Stamp) bool {
		t.Helper()
		found, err := s.HasOpenACLEntries(t.Context(), who, at)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if !open(now) || !open(later) { // one never ends
		t.Error("there are no open entries")
	}
	for _, want := range []int{2, 0} {
		var closed int
		update(t, s, func(ctx context.Context, tx *sqlstore.Tx) (err error) {
			closed, err = tx.CloseACLEntries(ctx, who, now)
			return err
		})
		if closed != want {
			t.Errorf("closed %d entries, want %d", closed, want)
		}
	}
	if open(now) {
		t.Error("there are open entries left")
	}
	for i, want := range []keyserver.Stamp{now, earlier, now} {
		acl, err := s.ACL(t.Context(), id(100+uint64(i)))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := acl.Entry(who)
		other, _ := acl.Entry(keyserver.PrincipalRef{System: 8, ID: who.ID})
		if got.End != want || !other.End.IsUnset() {
			t.Errorf("entry %d ends at %v, want %v; another's at %v", i, got.End, want, other.End)
		}
	}
	after, err := s.Changes(t.Context(), before.Cursor, 1000)
	if err != nil || len(after.Changes) != 2 {
		t.Errorf("the feed has %+v, %v", after.Changes, err)
	}
	if has, err := s.HasACLEntries(t.Context(), who); err != nil || !has {
		t.Errorf("has entries: %v, %v", has, err)
	}
	if has, err := s.HasACLEntries(t.Context(), keyserver.PrincipalRef{System: 9, ID: who.ID}); err != nil || has {
		t.Errorf("somebody else has entries: %v, %v", has, err)
	}
}
