package sqlstore_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

func testChanges(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	hooked := collect(s)
	if page, err := s.Changes(t.Context(), 0, 10); err != nil || page.Reset || page.Cursor != 0 || len(page.Changes) != 0 {
		t.Errorf("nothing happened yet: got %+v, %v", page, err)
	}
	update(t, s, insertRole(role(1, "a")), insertPrincipal(principal(2, "b"), ""), func(ctx context.Context, tx *sqlstore.Tx) error {
		if err := tx.SetPrincipalFlags(ctx, id(2), 0); err != nil {
			return err
		}
		return tx.SetPrincipalRoles(ctx, id(2), ids(1))
	})
	update(t, s, insertKey(key(3), entry(4, 2)), insertCA(ca(5, "der")))
	want := []keyserver.Change{
		{Seq: 1, Kind: keyserver.ChangeRole, ID: id(1), Action: keyserver.Created},
		{Seq: 2, Kind: keyserver.ChangePrincipal, ID: id(2), Action: keyserver.Created},
		{Seq: 3, Kind: keyserver.ChangePrincipal, ID: id(2), Action: keyserver.Updated}, // once, despite two calls
		{Seq: 4, Kind: keyserver.ChangeKey, ID: id(3), Action: keyserver.Created},
		{Seq: 5, Kind: keyserver.ChangeTrustedCA, ID: id(5), Action: keyserver.Created},
	}
	if diff := cmp.Diff(want, hooked()); diff != "" {
		t.Errorf("hooks get every change before Update returns: %s", diff)
	}
	pages := map[string]struct {
		reason string
		after  int64
		limit  int
		want   keyserver.ChangePage
	}{
		"All":      {"from the start", 0, 100, keyserver.ChangePage{Cursor: 5, Changes: want}},
		"Limited":  {"a page ends at its limit", 1, 2, keyserver.ChangePage{Cursor: 3, Changes: want[1:3]}},
		"NoLimit":  {"a limit out of range is brought into it", 4, -1, keyserver.ChangePage{Cursor: 5, Changes: want[4:]}},
		"Head":     {"nothing new", 5, 100, keyserver.ChangePage{Cursor: 5}},
		"Beyond":   {"a cursor of another database", 6, 100, keyserver.ChangePage{Cursor: 5, Reset: true}},
		"Negative": {"a cursor of nothing", -7, 100, keyserver.ChangePage{Cursor: 5, Reset: true}},
	}
	for name, tc := range pages {
		got, err := s.Changes(t.Context(), tc.after, tc.limit)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s: %s", name, tc.reason, diff)
		}
	}
}

func testChangesInOrder(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	const writers, each = 8, 25
	hooked := collect(s)
	// A reader of the feed must get every number in order, even while other
	// stores commit.
	stop, read := newSignal(), newSignal()
	go func() {
		defer close(read)
		cursor := int64(0)
		for cursor < writers*each {
			select {
			case <-stop:
				return
			default:
			}
			page, err := s.Changes(context.Background(), cursor, 7)
			if err != nil || page.Reset {
				t.Errorf("after %d: %+v, %v", cursor, page, err)
				return
			}
			for _, c := range page.Changes {
				if c.Seq != cursor+1 {
					t.Errorf("change %d comes after %d", c.Seq, cursor)
				}
				cursor = c.Seq
			}
		}
	}()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				n := uint64(w*each + i + 1)
				if err := tryUpdate(t, s, insertRole(role(n, fmt.Sprint("role ", n)))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		close(stop)
	}
	<-read
	delivered := hooked()
	if len(delivered) != writers*each {
		t.Errorf("hooks got %d of %d changes", len(delivered), writers*each)
	}
	for i, c := range delivered {
		if c.Seq != int64(i+1) {
			t.Fatalf("a hook got change %d after %d", c.Seq, i)
		}
	}
}

// collect returns a function that returns the changes that hooks have received so
// far, without duplicates.
func collect(s *sqlstore.Store) func() []keyserver.Change {
	var mu sync.Mutex
	var got []keyserver.Change
	s.OnChange(func(changes []keyserver.Change) {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range changes {
			if !slices.Contains(got, c) {
				got = append(got, c)
			}
		}
	})
	return func() []keyserver.Change {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(got)
	}
}

func newSignal() chan struct{} { return make(chan struct{}) }

func testChangesPruned(t *testing.T, make newDatabase) {
	d := make(t)
	d.config.KeptChanges = 5
	s := d.open(t)
	defer closeStore(t, s)
	for n := range uint64(20) {
		update(t, s, insertRole(role(n+1, fmt.Sprint("role ", n))))
	}
	if page, err := s.Changes(t.Context(), 15, 100); err != nil || page.Reset || len(page.Changes) != 5 {
		t.Errorf("what is kept can be read: got %+v, %v", page, err)
	}
	if page, err := s.Changes(t.Context(), 14, 100); err != nil || !page.Reset || page.Cursor != 20 {
		t.Errorf("what is not makes a reader start anew: got %+v, %v", page, err)
	}
}
