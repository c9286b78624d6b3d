package oncall

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"filippo.io/age"
	_ "modernc.org/sqlite" // the SQL driver

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// keyServer is a process whose metrics are scraped. The address of the metrics stays the same over restarts.
type keyServer struct {
	*program.Server
	by      program.Program
	dataDir string
	args    []string
	metrics string
}

// serve starts a key server. The test ends it.
func serve(t *testing.T, by program.Program, args ...string) *keyServer {
	t.Helper()
	return serveIn(t, t.TempDir(), by, args...)
}

// serveIn is serve with the data directory in a directory.
func serveIn(t *testing.T, dir string, by program.Program, args ...string) *keyServer {
	t.Helper()
	k := &keyServer{by: by, dataDir: filepath.Join(dir, "data"), metrics: rig.FreeAddress(t, "127.0.0.1")}
	k.start(t, args...)
	t.Cleanup(func() { k.Kill() })
	return k
}

// start starts the key server with these arguments, and stores them for later starts.
func (k *keyServer) start(t *testing.T, args ...string) {
	t.Helper()
	k.args = args
	var err error
	k.Server, err = k.by.Serve(k.dataDir, slices.Concat(args, []string{"--metrics-listen", k.metrics, "--checkpoint-interval", "200ms"})...)
	rig.Must(t, err)
}

func (k *keyServer) stop(t *testing.T) {
	t.Helper()
	rig.Must(t, k.Stop())
}

func (k *keyServer) restart(t *testing.T, more ...string) {
	t.Helper()
	k.stop(t)
	k.start(t, slices.Concat(k.args, more)...)
}

// admin returns a client of its administrator, which uses the current address for each call.
func (k *keyServer) admin(t *testing.T) *client.Client {
	t.Helper()
	password, err := k.Password()
	rig.Must(t, err)
	return program.Client(t, program.Connect(t, k.dataDir, func() string { return k.Address }), "admin", password, program.NoRetries)
}

// doctor runs the doctor command of the runbook. It returns no error if doctor finds no problem.
func (k *keyServer) doctor(t *testing.T) (string, error) {
	t.Helper()
	return k.by.Run("doctor", "--data-dir", k.dataDir)
}

// database opens the embedded database that the process is using.
func (k *keyServer) database(t *testing.T) *sql.DB {
	t.Helper()
	file := url.URL{Scheme: "file", OmitHost: true, Path: filepath.Join(k.dataDir, "keyserver.db"), RawQuery: "_busy_timeout=10000"}
	db, err := sql.Open("sqlite", file.String())
	rig.Must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func change(t *testing.T, db *sql.DB, text string, args ...any) {
	t.Helper()
	changed, err := db.ExecContext(t.Context(), text, args...)
	rig.Must(t, err)
	if n, err := changed.RowsAffected(); err != nil || n == 0 {
		t.Fatalf("%s: %d rows are changed: %v", text, n, err)
	}
}

func write(t *testing.T, admin *client.Client, n int) {
	t.Helper()
	for range n {
		_, err := admin.ListRoles(t.Context())
		rig.Must(t, err)
	}
}

// recipient returns a recipient whose identity is not needed.
func recipient(t *testing.T) string {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	rig.Must(t, err)
	return identity.Recipient().String()
}

// alertEnvironment is an environment for one alert, in which no other alert fires.
type alertEnvironment struct {
	alert  string
	labels map[string]string
	// build starts the environment without a fault.
	build func(t *testing.T) startedEnvironment
}

// startedEnvironment is a started house.
type startedEnvironment struct {
	scraped       []*keyServer
	provoke, cure func(t *testing.T)
}

// TestAlertsOfKeyServers causes each alert in a separate house.
func TestAlertsOfKeyServers(t *testing.T) {
	t.Parallel()
	for _, h := range houses {
		t.Run(h.alert, func(t *testing.T) {
			t.Parallel()
			c := h.build(t)
			jobs := map[string]string{}
			for i, k := range c.scraped {
				jobs[fmt.Sprint("api-", i)] = k.metrics
			}
			newWatch(t, jobs).goesThrough(t, fault{h.alert, h.labels, c.provoke, c.cure})
		})
	}
}

// load repeats a request in many goroutines until the test ends.
func load(t *testing.T, many int, ask func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{}, many)
	for range many {
		go func() {
			for ctx.Err() == nil {
				ask(ctx)
				select {
				case <-ctx.Done():
				case <-time.After(5 * time.Millisecond):
				}
			}
			ended <- struct{}{}
		}()
	}
	t.Cleanup(func() {
		cancel()
		for range many {
			<-ended
		}
	})
}

// rolesAnswer requests the roles until the response has this code.
func rolesAnswer(t *testing.T, admin *client.Client, code string) {
	t.Helper()
	rig.Soon(t, "the roles are answered with "+code, func() bool {
		_, err := admin.ListRoles(t.Context())
		return client.CodeOf(err) == code
	})
}

func newRole(t *testing.T, admin *client.Client, name string) schema.HexID {
	t.Helper()
	saved, err := admin.CreateRole(t.Context(), schema.CreateRoleRequest{Name: name, Operations: []schema.HexID{}})
	rig.Must(t, err)
	return saved.ID
}
