package sqlstore_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// testEncryptions checks that replicas together never reserve more encryptions than
// the limit.
func testEncryptions(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	const limit = 1000
	reserve := func(key keyserver.ID, n int64) (got, left int64) {
		if err := s.Update(t.Context(), func(tx *sqlstore.Tx) (err error) {
			got, left, err = tx.ReserveEncryptions(t.Context(), key, n, limit)
			return err
		}); err != nil {
			t.Error(err)
		}
		return got, left
	}
	for i, want := range [][3]int64{{400, 400, 600}, {1, 1, 599}, {600, 599, 0}, {1, 0, 0}} {
		if got, left := reserve(id(1), want[0]); got != want[1] || left != want[2] {
			t.Errorf("step %d: got %d, %d left; want %v", i, got, left, want)
		}
	}
	var mu sync.Mutex
	var sum int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				got, _ := reserve(id(2), 70)
				mu.Lock()
				sum += got
				mu.Unlock()
				if got == 0 {
					return
				}
			}
		})
	}
	all.Wait()
	if sum != limit {
		t.Errorf("%d were given out of %d", sum, limit)
	}
}

// testSuccessors checks that a new successor also records a change of the first key
// of the lineage.
func testSuccessors(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	heard := collect(s)
	insert := func(n uint64, life keyserver.KeyLife) {
		t.Helper()
		record := sqlstore.KeyRecord{ID: id(n), Algorithm: keyserver.AES256, KeyBytes: 32, ACL: id(100 + n), Life: life}
		if err := s.Update(t.Context(), func(tx *sqlstore.Tx) error { return tx.InsertKey(t.Context(), record) }); err != nil {
			t.Fatal(err)
		}
	}
	insert(1, keyserver.FirstLife(id(1)))
	insert(2, keyserver.KeyLife{State: keyserver.KeyEnabled, Lineage: id(1), Generation: 2})
	want := []keyserver.Change{
		{Kind: keyserver.ChangeKey, ID: id(1), Action: keyserver.Created}, {Kind: keyserver.ChangeKey, ID: id(2), Action: keyserver.Created},
		{Kind: keyserver.ChangeKey, ID: id(1), Action: keyserver.Updated},
	}
	got := heard()
	for i := range got {
		got[i].Seq = 0
	}
	if !slices.Equal(got, want) {
		t.Errorf("heard of %v, want %v", got, want)
	}
	line, err := s.KeyLineage(t.Context(), id(1))
	if err != nil || len(line) != 2 || line[1].ID != id(2) {
		t.Errorf("the line is %v, %v", line, err)
	}
}
