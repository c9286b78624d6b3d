package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestReadersThatWait lets all read connections of a replica wait for the database. Requests that need no such
// connection succeed, the replica stays ready, and the metric shows the waiting requests.
func TestReadersThatWait(t *testing.T) {
	url := pgtest.DurableDatabase(t)
	metrics := rig.FreeAddress(t, "127.0.0.1")
	one := replicas(t, 1, "--database-url", url, "--database-max-connections", "7", "--metrics-listen", metrics)[0]
	_, _ = load(t, []*replica{one}, 2)
	rig.Soon(t, "a key is used", func() bool { return one.done.Load() > 0 })
	holder := connect(t, url)
	_, err := holder.Exec(t.Context(), `BEGIN; LOCK TABLE roles IN ACCESS EXCLUSIVE MODE`)
	rig.Must(t, err)
	const readers = 6 // for two connections
	answered := make(chan error, readers)
	for range readers {
		go func() {
			_, err := one.admin.ListRoles(t.Context())
			answered <- err
		}()
	}
	look := connect(t, url)
	rig.Soon(t, "the connections for reading wait", func() bool {
		var n int
		rig.Must(t, look.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'relation' AND datname = current_database()`).Scan(&n))
		return n >= 2
	})
	before := one.done.Load()
	rig.Soon(t, "keys are used", func() bool { return one.done.Load() > before+20 })
	if detail := notReady(t, one); detail != "" {
		t.Errorf("ready: %s", detail)
	}
	if rig.Metric(t, metrics, `keyserver_database_connection_waits_total{use="read"}`) == 0 {
		t.Error("the metric counts no waits for a connection")
	}
	_, err = holder.Exec(t.Context(), `ROLLBACK`)
	rig.Must(t, err)
	for range readers {
		if err := <-answered; err != nil && !client.IsUnavailable(err) {
			t.Errorf("who has waited: %v", err)
		}
	}
}

// refusals are causes for which a database refuses all connections, until end is called.
var refusals = map[string]func(t *testing.T, server *pgtest.Cluster, url string) (end func()){
	"TheServerIsDown": func(t *testing.T, server *pgtest.Cluster, _ string) func() {
		server.Kill(t)
		return func() { server.Restart(t) }
	},
	"NoConnectionIsLeft": func(t *testing.T, server *pgtest.Cluster, url string) func() {
		look := connect(t, server.URL())
		var taken []*pgx.Conn
		full := func() bool {
			conn, err := pgx.Connect(t.Context(), server.URL())
			if err == nil {
				taken = append(taken, conn)
				return false
			}
			var e *pgconn.PgError
			if !errors.As(err, &e) || e.Code != "53300" {
				t.Fatal(err)
			}
			return true
		}
		var most int
		rig.Must(t, look.QueryRow(t.Context(), `SELECT setting::int FROM pg_settings WHERE name = 'max_connections'`).Scan(&most))
		rig.Soon(t, "the replicas have no connection, and there is none", func() bool {
			for !full() {
			}
			_, err := look.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1`,
				strings.TrimPrefix(url[strings.Index(url, "@/"):strings.Index(url, "?")], "@/"))
			rig.Must(t, err)
			return len(taken)+1 == most // pg_stat_activity lacks a connection that is being established
		})
		return func() {
			for _, conn := range taken {
				_ = conn.Close(context.Background())
			}
		}
	},
}

// TestConnectionsAreRefused checks a server without database connections. It acknowledges nothing, readiness and the
// metric show the reason, and it recovers without a restart.
func TestConnectionsAreRefused(t *testing.T) {
	for name, refuse := range refusals {
		t.Run(name, func(t *testing.T) {
			server := pgtest.Start(t)
			url := server.Database(t)
			metrics := rig.FreeAddress(t, "127.0.0.1")
			all := replicasEach(t, [][]string{{"--metrics-listen", metrics}, nil}, "--database-url", url)
			one := all[0]
			a := newAsker(t, all)
			w := write(t, all[0], "role")
			pause(t.Context(), time.Second)
			end := refuse(t, server, url)
			time.Sleep(1200 * time.Millisecond) // longer than the staleness bound
			if allowed, decided := a.ask(t); allowed || decided {
				t.Error("it decides without a database")
			}
			for _, part := range []string{"database", "currency", "writes"} {
				rig.Soon(t, "it is not ready: "+part, func() bool { return strings.Contains(notReady(t, one), part) })
			}
			rig.Soon(t, "the metric shows it", func() bool { return rig.Metric(t, metrics, `keyserver_ready{part="writes"}`) == 0 })
			end()
			ended := time.Now()
			rig.Soon(t, "it decides", func() bool { _, decided := a.ask(t); return decided })
			t.Logf("it decides %v after the end of it", time.Since(ended).Round(time.Millisecond))
			for _, r := range all {
				rig.Soon(t, "it is ready", func() bool { return notReady(t, r) == "" })
			}
			rig.Soon(t, "the metric shows it", func() bool { return rig.Metric(t, metrics, `keyserver_ready{part="writes"}`) == 1 })
			w.stop(t, all[1])
			stopped(t, url, all...)
		})
	}
}

// TestAFullDiskOfTheDatabase checks that only data on disk is acknowledged, and that the server recovers without a
// restart when there is space.
func TestAFullDiskOfTheDatabase(t *testing.T) {
	server := pgtest.Start(t)
	disk := server.Disk(t, 64<<20)
	url := server.DatabaseOn(t, disk)
	metrics := rig.FreeAddress(t, "127.0.0.1")
	one := replicas(t, 1, "--database-url", url, "--metrics-listen", metrics)[0]
	_, stopLoad := load(t, []*replica{one}, 4)
	w := write(t, one, "role")
	rig.Soon(t, "a key is used", func() bool { return one.done.Load() > 0 })
	filler := filepath.Join(disk, "filler")
	fill(t, filler)
	rig.Soon(t, "it is not ready", func() bool { return strings.Contains(notReady(t, one), "audit") })
	rig.Soon(t, "the metric shows it", func() bool { return rig.Metric(t, metrics, `keyserver_ready{part="audit"}`) == 0 })
	_, err := one.admin.CreateRole(t.Context(), schema.CreateRoleRequest{Name: "without room"})
	var e *client.Error
	if err != nil && (!errors.As(err, &e) || e.Status != http.StatusServiceUnavailable) {
		t.Errorf("a write without room: %v", err)
	}
	rig.Must(t, os.Remove(filler))
	done := one.done.Load()
	rig.Soon(t, "keys are used again", func() bool { return one.done.Load() > done+20 })
	rig.Soon(t, "it is ready", func() bool { return notReady(t, one) == "" })
	stopLoad()
	w.stop(t, one)
	stopped(t, url, one)
}

// fill fills the file system of a file.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	rig.Must(t, err)
	defer func() { _ = f.Close() }()
	for size := 1 << 20; size > 0; {
		_, err := f.Write(make([]byte, size))
		switch {
		case errors.Is(err, syscall.ENOSPC):
			size /= 2
		case err != nil:
			t.Fatal(err)
		}
	}
	if info, err := f.Stat(); err != nil || info.Size() == 0 {
		t.Fatal(fmt.Sprint("nothing was filled: ", info, err))
	}
}
