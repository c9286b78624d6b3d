package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// runsVariable is the number of kills of the database: 20 for docs/guides/postgresql-failures.md.
const runsVariable = "BENCH_RUNS"

// BenchmarkRestart measures a killed PostgreSQL with two replicas: the time from when it accepts connections again to
// the first response of each kind by the slower replica.
func BenchmarkRestart(b *testing.B) {
	runs := 1
	if text := os.Getenv(runsVariable); text != "" {
		var err error
		if runs, err = strconv.Atoi(text); err != nil || runs < 1 {
			b.Fatalf("%s is %q, and has to be a number from 1 on", runsVariable, text)
		}
	}
	for _, requests := range []bool{true, false} {
		b.Run(map[bool]string{true: "UnderLoad", false: "AtRest"}[requests], func(b *testing.B) {
			for b.Loop() {
				r := newRestart(b, requests)
				took := map[string][]time.Duration{}
				for n := range runs {
					one := r.kill(b, 2*time.Second+rand.N(2*time.Second))
					fmt.Fprintf(os.Stderr, "run %d: %v\n", n+1, one)
					for kind, d := range one {
						took[kind] = append(took[kind], d)
					}
				}
				for kind, all := range took {
					slices.Sort(all)
					b.ReportMetric(float64(all[len(all)/2].Milliseconds()), kind+"-median-ms")
					b.ReportMetric(float64(all[len(all)-1].Milliseconds()), kind+"-worst-ms")
				}
			}
			b.ReportMetric(0, "ns/op") // most of it is the setup
		})
	}
}

// restart has two replicas on a PostgreSQL that is killed.
type restart struct {
	server *pgtest.Cluster
	url    string
	all    []*replica
	kinds  map[string]func(context.Context, *replica) error
}

// newRestart starts both. If requests is false, it only polls readiness, as a probe does.
func newRestart(t testing.TB, requests bool) *restart {
	t.Helper()
	r := &restart{server: pgtest.Start(t), kinds: map[string]func(context.Context, *replica) error{
		"ready": func(ctx context.Context, one *replica) error {
			ready, err := one.admin.GetReadiness(ctx)
			if err == nil && !ready.Ready {
				err = fmt.Errorf("%+v", ready.Parts)
			}
			return err
		},
	}}
	r.url = r.server.Database(t)
	r.all = replicas(t, 2, "--database-url", r.url)
	if !requests {
		return r
	}
	made, err := r.all[0].admin.MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	rig.Must(t, err)
	r.kinds["hmac"] = func(ctx context.Context, one *replica) error {
		_, err := one.admin.HMAC(ctx, made.TTag, strings.NewReader("message"))
		return err
	}
	r.kinds["read"] = func(ctx context.Context, one *replica) error {
		_, err := one.admin.ListRoles(ctx)
		return err
	}
	r.kinds["write"] = func(ctx context.Context, one *replica) error {
		_, err := one.admin.MintKey(ctx, schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
		return err
	}
	return r
}

// kill kills the database, and starts it again after the time away. It returns the time from when the database accepts
// connections to the first response of each kind by the slower replica.
func (r *restart) kill(t testing.TB, away time.Duration) map[string]time.Duration {
	t.Helper()
	rig.Soon(t, "all is well", func() bool {
		for _, one := range r.all {
			for _, ask := range r.kinds {
				if ask(t.Context(), one) != nil {
					return false
				}
			}
		}
		return true
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	var accepts time.Time
	first := map[string]time.Duration{}
	last := map[string]error{}
	var asking sync.WaitGroup
	for i, one := range r.all {
		for kind, ask := range r.kinds {
			asking.Go(func() {
				for ctx.Err() == nil {
					began := time.Now()
					err := ask(ctx, one)
					mu.Lock()
					name := kind + strconv.Itoa(i)
					if _, there := first[name]; err == nil && !there && !accepts.IsZero() && began.After(accepts) {
						first[name] = time.Since(accepts)
					}
					if err != nil && !accepts.IsZero() {
						last[name] = err
					}
					mu.Unlock()
					pause(ctx, 10*time.Millisecond)
				}
			})
		}
	}
	r.server.Kill(t)
	pause(ctx, away)
	asking.Go(func() {
		for ctx.Err() == nil {
			conn, err := pgx.Connect(ctx, r.url)
			if err == nil {
				_ = conn.Close(ctx)
				mu.Lock()
				accepts = time.Now()
				mu.Unlock()
				return
			}
			pause(ctx, 2*time.Millisecond)
		}
	})
	r.server.Restart(t)
	rig.Soon(t, "all go on", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(first) == len(r.all)*len(r.kinds)
	})
	cancel()
	asking.Wait()
	took := map[string]time.Duration{}
	for name, d := range first {
		kind := strings.TrimRight(name, "0123456789")
		took[kind] = max(took[kind], d.Round(time.Millisecond))
	}
	if testing.Verbose() {
		t.Logf("the last refusals: %v", last)
	}
	return took
}
