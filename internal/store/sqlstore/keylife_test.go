package sqlstore_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// TestDestroyedBytesAreGone checks that no file has any of the wrapped bytes of a destroyed
// key, even if pages were filled, split and rewritten before.
func TestDestroyedBytesAreGone(t *testing.T) {
	d := inDirectory(t)
	s := d.open(t)
	closed := false
	defer func() {
		if !closed {
			_ = s.Close()
		}
	}()
	const keys = 1200
	seed := rand.NewChaCha8([32]byte{7})
	wrapped := make([][]byte, keys)
	life := func(n uint64, state keyserver.KeyState) write {
		return func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.SetKeyLife(ctx, id(n), keyserver.KeyLife{State: state, StateAt: at(int64(n))})
		}
	}
	for i := range keys {
		k := key(uint64(i) + 10_000)
		k.ACL = id(uint64(i) + 100_000)
		wrapped[i] = make([]byte, 80+rand.New(seed).IntN(1000))
		_, _ = seed.Read(wrapped[i])
		k.Wrapped = wrapped[i]
		update(t, s, insertKey(k, entry(uint64(i)+200_000, 20)))
		if i%3 == 0 { // a row that grows moves others
			update(t, s, life(uint64(i/2)+10_000, keyserver.KeyVerifyOnly))
		}
	}
	for i := range keys {
		update(t, s, life(uint64(i)+10_000, keyserver.KeyDestroying))
	}
	found := func(i int) bool {
		files, err := filepath.Glob(filepath.Join(d.config.Dir, "*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%v, %v", files, err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for at := 0; at+16 <= len(wrapped[i]); at += 16 {
				if bytes.Contains(content, wrapped[i][at:at+16]) {
					return true
				}
			}
		}
		return false
	}
	if !found(1) || !found(2) {
		t.Fatal("the search finds nothing of a key that is there")
	}
	for i := 1; i < keys; i += 2 {
		update(t, s, life(uint64(i)+10_000, keyserver.KeyDestroyed))
	}
	if done, err := s.Erase(t.Context()); err != nil || !done {
		t.Fatalf("erase: %v, %v", done, err)
	}
	left := func(when string) {
		t.Helper()
		n := 0
		for i := 1; i < keys; i += 2 {
			if found(i) {
				n++
			}
		}
		if n > 0 {
			t.Errorf("%s, something of %d of %d destroyed keys is left", when, n, keys/2)
		}
	}
	left("while it is open")
	if !found(2) {
		t.Error("a key that was not destroyed is gone")
	}
	closed = true
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	left("after it was closed")
}

// TestEraseWaitsForNobody checks that Erase does not wait for an open read, which keeps old
// data in the log, and that Erase succeeds after the read has ended.
func TestEraseWaitsForNobody(t *testing.T) {
	d := inDirectory(t)
	s := d.open(t)
	if done, err := s.Erase(t.Context()); err != nil || !done {
		t.Errorf("with nothing to erase: %v, %v", done, err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	gone := func(ctx context.Context, tx *sqlstore.Tx) error {
		return tx.SetKeyLife(ctx, id(30), keyserver.KeyLife{State: keyserver.KeyDestroyed, StateAt: at(1)})
	}
	update(t, s, insertKey(key(30), entry(40, 20)), gone)
	reader := openOutside(t, d)
	reader.run(t, `BEGIN`)
	var n int
	if err := reader.QueryRowContext(t.Context(), `SELECT count(*) FROM stored_keys`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if done, err := s.Erase(t.Context()); err == nil && done {
		t.Error("erased beside somebody who reads")
	}
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("waited %s", took)
	}
	reader.run(t, `ROLLBACK`)
	if done, err := s.Erase(t.Context()); err != nil || !done {
		t.Errorf("afterwards: %v, %v", done, err)
	}
}

// TestLease checks that only one process at a time has a lease, until it releases the lease
// or the lease ends.
func TestLease(t *testing.T) {
	for name, make := range migratedKinds {
		t.Run(name, func(t *testing.T) {
			d := make(t)
			s := d.open(t)
			defer func() { _ = s.Close() }()
			take := func(now time.Time, want bool) {
				t.Helper()
				if got, err := s.Lease(t.Context(), sqlstore.LeaseKeyLife, now, time.Minute); err != nil || got != want {
					t.Errorf("at %s: %v, %v", now, got, err)
				}
			}
			take(at(0), true)
			take(at(1), false)
			take(at(0).Add(time.Minute), true)
			if err := s.EndLease(t.Context(), sqlstore.LeaseKeyLife); err != nil {
				t.Fatal(err)
			}
			take(at(2), true)
			// A stored lease that ends too late is invalid.
			d.tamper(t, `UPDATE leases SET until = 9000000000000000000 WHERE name = 'keyLife'`)
			take(at(3), true)
		})
	}
}
