package sqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

func TestServerRefused(t *testing.T) {
	const secret = "the-password"
	for name, url := range map[string]string{
		"NoURL":       secret,
		"OtherScheme": "mysql://user:" + secret + "@localhost/db",
		"BadPort":     "postgres://user:" + secret + "@localhost:port/db",
		"BadEscape":   "postgres://user:" + secret + "%zz@localhost/db",
		"NobodyThere": "postgres://user:" + secret + "@127.0.0.1:1/db?sslmode=disable",
	} {
		_, err := sqlstore.Open(t.Context(), sqlstore.Config{URL: url})
		if !errors.Is(err, sqlstore.ErrUnusable) {
			t.Errorf("%s: got %v, want ErrUnusable", name, err)
		}
		if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), secret) {
			t.Errorf("%s: the error shows the password", name)
		}
	}
}

// TestReplicasStartTogether checks that replicas can start at the same time on an
// empty database.
func TestReplicasStartTogether(t *testing.T) {
	d := onServer(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			s, err := sqlstore.Open(t.Context(), d.config)
			if err != nil {
				t.Error(err)
				return
			}
			s.UseRowKey(rowKey(t))
			closeStore(t, s)
		})
	}
	wg.Wait()
}

func TestReplicasSeeEachOther(t *testing.T) {
	d := onServer(t)
	one, two := d.open(t), d.open(t)
	defer closeStore(t, one)
	defer closeStore(t, two)
	seen := make(chan keyserver.Change, 100)
	two.OnChange(func(changes []keyserver.Change) {
		for _, c := range changes {
			seen <- c
		}
	})
	for n := range uint64(5) {
		update(t, one, insertRole(role(n+1, fmt.Sprint("role ", n))))
		select {
		case c := <-seen:
			if c.ID != id(n+1) {
				t.Errorf("change %d is %+v", n+1, c)
			}
		case <-time.After(deadline):
			t.Fatal("the other replica never saw the change")
		}
	}
	if err := errors.Join(one.Current(t.Context()), two.Current(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestReplicasWriteInTurn checks that no two Updates overlap, so that no write
// comes between a read and the write of another Update.
func TestReplicasWriteInTurn(t *testing.T) {
	d := onServer(t)
	stores := []*sqlstore.Store{d.open(t), d.open(t)}
	const each = 20
	var wg sync.WaitGroup
	for _, s := range stores {
		defer closeStore(t, s)
		for range 2 {
			wg.Go(func() {
				for range each {
					err := tryUpdate(t, s, func(ctx context.Context, tx *sqlstore.Tx) error {
						count, err := tx.Setting(ctx, "count")
						if err != nil && !errors.Is(err, sqlstore.ErrNotFound) {
							return err
						}
						return tx.PutSetting(ctx, "count", append(count, 1))
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	if count, err := stores[0].Setting(t.Context(), "count"); len(count) != 2*2*each || err != nil {
		t.Errorf("%d of %d writes are there, %v", len(count), 2*2*each, err)
	}
}

// TestReplicasHaveTheirOwnChains checks that each writer claims the lowest free
// chain, and that the rows of all chains are one audit log without gaps.
func TestReplicasHaveTheirOwnChains(t *testing.T) {
	d := onServer(t)
	var writers []*audit.Writer
	for range 3 {
		s := d.open(t)
		defer closeStore(t, s)
		w := openWriter(t, s, audit.Options{})
		defer closeWriter(t, w)
		writers = append(writers, w)
	}
	var wg sync.WaitGroup
	for _, w := range writers {
		for range 4 {
			wg.Go(func() {
				for range 20 {
					if err := w.Write(t.Context(), row("hmacData", "", 1)); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	if report := readOnly(t, d); !report.Intact() || report.Chains != 3 || report.Rows != 240 {
		t.Errorf("got %+v", report)
	}
	closeWriter(t, writers[1])
	s := d.open(t)
	defer closeStore(t, s)
	for { // the server notices a closed connection with a delay
		chain, err := s.ClaimChain(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		head, err := chain.Head(t.Context())
		if err := errors.Join(err, chain.Release()); err != nil {
			t.Fatal(err)
		}
		if head.Chain == 2 && head.Position == 80 {
			return
		}
		if head.Chain < 4 && head.Chain != 2 {
			t.Fatalf("chain %d has its writer", head.Chain)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestServerCrashes kills the database under load. No acknowledged row is lost,
// a replica that is not current reports that, and all replicas continue when the
// database runs again.
func TestServerCrashes(t *testing.T) {
	cluster := pgtest.Start(t)
	d := database{config: sqlstore.Config{URL: cluster.Database(t)}}
	s := d.open(t)
	defer closeStore(t, s)
	w := openWriter(t, s, audit.Options{})
	defer closeWriter(t, w)
	update(t, s, insertRole(role(1, "before")))

	var acknowledged, refused int64
	for range 2 {
		var mu sync.Mutex
		var wg sync.WaitGroup
		running := make(chan struct{}, 1)
		for range 16 {
			wg.Go(func() {
				for {
					err := w.Write(t.Context(), row("hmacData", "", 1))
					mu.Lock()
					if err == nil {
						acknowledged++
					}
					mu.Unlock()
					if err != nil {
						if f := fault.As(err); f == nil || f.Code != fault.AuditUnavailable || !f.Retryable || f.RetryAfter != time.Second {
							t.Errorf("refused by %v", err)
						}
						mu.Lock()
						refused++
						mu.Unlock()
						return
					}
					select {
					case running <- struct{}{}:
					default:
					}
				}
			})
		}
		<-running
		cluster.Kill(t)
		wg.Wait()
		rig.Soon(t, "a replica without its database refuses", func() bool {
			err := s.Current(t.Context())
			return fault.CodeOf(err) == fault.NotCurrent
		})
		err := tryUpdate(t, s, insertRole(role(2, "during")))
		if fault.CodeOf(err) != fault.StoreUnavailable {
			t.Errorf("a write without the database: %v", err)
		}
		if _, err := s.Role(t.Context(), id(1)); fault.CodeOf(err) != fault.StoreUnavailable {
			t.Errorf("a read without the database: %v", err)
		}
		cluster.Restart(t)
		rig.Soon(t, "rows are written again", func() bool {
			if w.Write(t.Context(), row("hmacData", "", 1)) != nil {
				return false
			}
			acknowledged++
			return true
		})
		rig.Soon(t, "the replica is current again", func() bool { return s.Current(t.Context()) == nil })
	}
	rig.Soon(t, "writes go on", func() bool { return tryUpdate(t, s, insertRole(role(2, "after"))) == nil })
	if report := verify(t, s); !report.Intact() || report.Rows < acknowledged || report.Chains != 1 {
		t.Errorf("%d rows were acknowledged: %+v", acknowledged, report)
	}
	if refused != 32 {
		t.Errorf("%d writers were refused", refused)
	}
}

// TestMissedChanges checks that a process that has missed deleted changes gets
// nil, which means that all cached data may be outdated.
func TestMissedChanges(t *testing.T) {
	d := onServer(t)
	d.config.KeptChanges = 5
	one, two := d.open(t), d.open(t)
	defer closeStore(t, one)
	defer closeStore(t, two)
	release := make(chan struct{})
	reset := make(chan struct{}, 1)
	first := sync.OnceFunc(func() { <-release })
	two.OnChange(func(changes []keyserver.Change) {
		first() // blocks the follower, like a stopped process
		if changes == nil {
			select {
			case reset <- struct{}{}:
			default:
			}
		}
	})
	for n := range uint64(40) {
		update(t, one, insertRole(role(n+1, fmt.Sprint("role ", n))))
	}
	close(release)
	select {
	case <-reset:
	case <-time.After(deadline):
		t.Error("nobody said that changes were missed")
	}
}
