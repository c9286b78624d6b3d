// Package faults runs replicas as separate processes on a real PostgreSQL, injects a fault under load, and checks the
// other replicas.
package faults

import (
	"context"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/program"
)

var built program.Program

func TestMain(m *testing.M) { os.Exit(program.Main(m, &built, false)) }

// replica is a process with a client of its administrator.
type replica struct {
	*program.Server
	admin *client.Client
	done  atomic.Int64 // requests with a response
}

// replicas starts n processes on a database.
func replicas(t testing.TB, n int, args ...string) (all []*replica) {
	t.Helper()
	return replicasEach(t, make([][]string, n), args...)
}

// replicasEach starts a process for each list of arguments. args are common to all processes.
func replicasEach(t testing.TB, each [][]string, args ...string) (all []*replica) {
	t.Helper()
	for _, s := range built.Replicas(t, each, args...) {
		all = append(all, &replica{Server: s})
	}
	password, err := all[0].Password()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		over := program.Connect(t, r.DataDir, func() string { return r.Address })
		r.admin = program.Client(t, over, "admin", password, program.NoRetries)
	}
	return all
}

// load starts clients that use a key through every replica, until the test ends or stop is called.
func load(t *testing.T, all []*replica, each int) (key schema.HiddenLink, stop func()) {
	t.Helper()
	made, err := all[0].admin.MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	for _, r := range all {
		for range each {
			working.Go(func() {
				for ctx.Err() == nil {
					if _, err := r.admin.HMAC(ctx, made.TTag, strings.NewReader("message")); err == nil {
						r.done.Add(1)
					} else {
						pause(ctx, 10*time.Millisecond)
					}
				}
			})
		}
	}
	stop = sync.OnceFunc(func() { cancel(); working.Wait() })
	t.Cleanup(stop)
	return made.TTag, stop
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// connect opens a separate connection for the test.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
