package sqlstore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/internal/store/trustrows"
)

// TestPeerConformance checks that SQLite and PostgreSQL behave the same with the calls
// of peers and the entries of their principals.
func TestPeerConformance(t *testing.T) {
	for name, make := range migratedKinds {
		t.Run(name, func(t *testing.T) {
			t.Run("Calls", func(t *testing.T) { testPeerCalls(t, make) })
			t.Run("ManyCalls", func(t *testing.T) { testManyPeerCalls(t, make) })
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
			return tx.RecordPeerCall(ctx, keyserver.SystemID(7+n%2), keyserver.CallKey{n}, at, at.Add(time.Minute))
		})
	}
	known := func(at time.Time) (all []byte) {
		t.Helper()
		for n := range byte(20) {
			if ok, err := s.PeerCallKnown(t.Context(), keyserver.CallKey{n}, at); err != nil {
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
	if got := known(now); len(got) != 10 {
		t.Errorf("known: %v", got)
	}
	remember(10, now.Add(59*time.Second))
	if got := known(now.Add(59 * time.Second)); len(got) != 11 {
		t.Errorf("none has expired, known: %v", got)
	}
	if got := known(now.Add(time.Minute)); !slices.Equal(got, []byte{10}) {
		t.Errorf("ten have expired, though none is deleted, known: %v", got)
	}
	remember(9, now.Add(time.Minute)) // known as a new call; expired calls of the same peer are deleted
	if got := known(now); !slices.Equal(got, []byte{0, 2, 4, 6, 8, 9, 10}) {
		t.Errorf("what has expired was not deleted: %v", got)
	}
	update(t, s, insertPrincipal(transport(10), ""), insertPeer(peer(7, 10)),
		func(ctx context.Context, tx *sqlstore.Tx) error { return tx.DeleteTrustedServer(ctx, 7) })
	if got := known(now); !slices.Equal(got, []byte{9}) {
		t.Errorf("the calls of a peer that was removed are remembered: %v", got)
	}
	err := s.Update(t.Context(), func(tx *sqlstore.Tx) error {
		return tx.RecordPeerCall(t.Context(), 7, keyserver.CallKey{9}, now, now)
	})
	if !errors.Is(err, sqlstore.ErrDuplicate) {
		t.Errorf("a call was remembered twice: %v", err)
	}
}

// testManyPeerCalls checks that MaxPeerCalls limits the stored calls of one peer,
// and does not affect another peer.
func testManyPeerCalls(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	call := func(n int) (k keyserver.CallKey) {
		binary.BigEndian.PutUint32(k[:], uint32(n))
		return k
	}
	const more, batchLen = 10, 1024
	other := call(-1)
	update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error {
		return tx.RecordPeerCall(ctx, 8, other, now, now.Add(time.Minute))
	})
	for batch := range slices.Chunk(upTo(trustrows.MaxPeerCalls+more), batchLen) {
		update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error {
			for _, n := range batch {
				if err := tx.RecordPeerCall(ctx, 7, call(n), now, now.Add(time.Minute)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for key, want := range map[keyserver.CallKey]bool{
		other: true, call(0): false, call(more - 1): false, call(more): true, call(trustrows.MaxPeerCalls + more - 1): true,
	} {
		if known, err := s.PeerCallKnown(t.Context(), key, now); err != nil || known != want {
			t.Errorf("%x is known: %v, want %v, %v", key[:4], known, want, err)
		}
	}
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func testClosedEntries(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	now := values.StampOf(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	earlier := values.StampOf(time.Date(2026, 2, 1, 12, 0, 0, 0, time.UTC))
	later := values.StampOf(time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC))
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
	if !open(now) || !open(later) { // one entry never ends
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
