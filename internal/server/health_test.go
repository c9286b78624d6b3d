package server_test

import (
	"crypto/tls"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// ready sends GET /api/ready without a session, like a load balancer.
func ready(t *testing.T, s *testserver.Server) (status int, out schema.Ready) {
	t.Helper()
	transport := &http.Transport{}
	if strings.HasPrefix(s.URL(), "https:") {
		transport.TLSClientConfig = &tls.Config{RootCAs: s.Pool(t), MinVersion: tls.VersionTLS13}
	}
	c := &http.Client{Transport: transport}
	defer c.CloseIdleConnections()
	resp, err := c.Get(s.URL() + "/api/ready")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, out
}

// failing returns a part by its name, and whether it is not ready.
func failing(t *testing.T, s *testserver.Server, name string) (schema.Part, bool) {
	t.Helper()
	status, out := ready(t, s)
	for _, p := range out.Parts {
		if p.Part == name {
			if !p.Ready && (status != http.StatusServiceUnavailable || out.Ready || p.RetryInSeconds < 1) {
				t.Fatalf("a part fails, and the answer is %d %+v", status, out)
			}
			return p, !p.Ready
		}
	}
	t.Fatalf("there is no part %s in %+v", name, out)
	return schema.Part{}, false
}

func TestReadyWithoutRoom(t *testing.T) {
	s := testserver.Start(t, func(c *server.Config) { c.MinFreeBytes = 1 << 60 })
	if p, fails := failing(t, s, "volume"); !fails || !strings.Contains(p.Detail, "--min-free-bytes") {
		t.Errorf("the part is %+v", p)
	}
}

// TestStartOnAFullVolume checks that a start on a full volume fails with a remedy. After space is freed, the server
// starts with its old data.
func TestStartOnAFullVolume(t *testing.T) {
	disk := filepath.Join(t.TempDir(), "disk")
	rig.Must(t, os.Mkdir(disk, 0o700))
	if err := rig.Tmpfs(t, disk, "size=24m,mode=0700"); err != nil {
		t.Skipf("this machine does not let a test mount a small volume: %v", err)
	}
	var config server.Config
	s := testserver.Start(t, func(c *server.Config) { c.DataDir = filepath.Join(disk, "data"); config = *c })
	_, err := s.Admin(t).CreateRole(t.Context(), schema.CreateRoleRequest{Name: "of before", Operations: []schema.HexID{}})
	rig.Must(t, err)
	s.Stop(t)
	filler := filepath.Join(disk, "filler")
	f, err := os.Create(filler)
	rig.Must(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if rig.Must(t, f.Close()); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	_, err = server.Start(t.Context(), config)
	if err == nil || !strings.Contains(err.Error(), "the volume of --data-dir has 0 MiB free: free 32 MiB") {
		t.Fatalf("without room: %v", err)
	}
	rig.Must(t, os.Remove(filler))
	s.Restart(t)
	if list, err := s.Admin(t).ListRoles(t.Context()); err != nil || !slices.ContainsFunc(list.Roles, func(r schema.Role) bool { return r.Name == "of before" }) {
		t.Errorf("with room: %v", err)
	}
}

func TestReadyWithAnExpiredChain(t *testing.T) {
	var ahead atomic.Int64
	s := testserver.Start(t, func(c *server.Config) {
		c.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		c.InsecureHTTP = true // so that the expired certificate does not prevent requests
	})
	if p, fails := failing(t, s, "chain"); fails {
		t.Fatalf("from the start: %+v", p)
	}
	ahead.Store(int64(50 * 365 * 24 * time.Hour))
	rig.Soon(t, "the part fails", func() bool { _, fails := failing(t, s, "chain"); return fails })
	ahead.Store(0)
	rig.Soon(t, "it is ready again by itself", func() bool { status, _ := ready(t, s); return status == http.StatusOK })
}

// TestReadyWithAChainThatHasYetToBegin creates the CA with a clock that is ahead, and then sets the clock back.
func TestReadyWithAChainThatHasYetToBegin(t *testing.T) {
	var ahead atomic.Int64
	ahead.Store(int64(48 * time.Hour))
	s := testserver.Start(t, func(c *server.Config) {
		c.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		c.InsecureHTTP = true
	})
	if p, fails := failing(t, s, "chain"); fails {
		t.Fatalf("from the start: %+v", p)
	}
	ahead.Store(0)
	rig.Soon(t, "the part fails", func() bool {
		p, fails := failing(t, s, "chain")
		return fails && strings.Contains(p.Detail, "clock")
	})
	admin := s.Admin(t)
	_, err := admin.PrepareAuthority(t.Context())
	rig.Must(t, err)
	_, err = admin.ActivateAuthority(t.Context(), schema.ActivateAuthorityRequest{Early: true})
	rig.Must(t, err)
	rig.Soon(t, "another CA helps", func() bool { status, _ := ready(t, s); return status == http.StatusOK })
}

// TestReadyWhileTheDatabaseRefusesWrites checks that the server is not ready while the database rejects writes, so that
// a load balancer can send requests to another replica.
func TestReadyWhileTheDatabaseRefusesWrites(t *testing.T) {
	cluster := pgtest.Start(t)
	url := cluster.Database(t)
	s := testserver.Start(t, func(c *server.Config) { c.DatabaseURL = url })
	admin := s.Admin(t)
	if _, err := admin.GetCurrentSession(t.Context()); err != nil {
		t.Fatal(err)
	}
	set := func(statement string) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), url)
		rig.Must(t, err)
		defer func() { _ = conn.Close(t.Context()) }()
		for _, text := range []string{statement, `SELECT pg_reload_conf()`} {
			_, err = conn.Exec(t.Context(), text)
			rig.Must(t, err)
		}
	}
	set(`ALTER SYSTEM SET default_transaction_read_only = on`)
	rig.Soon(t, "the part fails", func() bool { _, fails := failing(t, s, "writes"); return fails })
	set(`ALTER SYSTEM RESET default_transaction_read_only`)
	rig.Soon(t, "it is ready again by itself", func() bool { status, _ := ready(t, s); return status == http.StatusOK })
}

// TestReadyWithAChangedSchema checks that a running server detects schema changes that could hide or change rows.
func TestReadyWithAChangedSchema(t *testing.T) {
	var ahead atomic.Int64
	var dir string
	s := testserver.Start(t, func(c *server.Config) {
		dir = c.DataDir
		c.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	if p, fails := failing(t, s, "schema"); fails {
		t.Fatalf("from the start: %+v", p)
	}
	change := func(statement string) {
		t.Helper()
		db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "keyserver.db")+"?_busy_timeout=10000")
		rig.Must(t, err)
		_, err = db.ExecContext(t.Context(), statement)
		rig.Must(t, errors.Join(err, db.Close()))
		ahead.Add(int64(time.Minute))
	}
	change(`CREATE INDEX theirs ON sessions (address)`)
	rig.Soon(t, "there is a warning", func() bool {
		status, out := ready(t, s)
		return status == http.StatusOK && slices.ContainsFunc(out.Warnings, func(w string) bool { return strings.Contains(w, `index "theirs"`) })
	})
	change(`CREATE TRIGGER keep BEFORE DELETE ON sessions BEGIN SELECT RAISE(IGNORE); END`)
	rig.Soon(t, "the part fails", func() bool {
		p, fails := failing(t, s, "schema")
		return fails && strings.Contains(p.Detail, `trigger "keep"`)
	})
	change(`DROP TRIGGER keep`)
	rig.Soon(t, "it is ready again by itself", func() bool { status, _ := ready(t, s); return status == http.StatusOK })
}

// TestReadyWithoutItsDirectory moves the data directory away from a running server. No request succeeds, the part names
// the remedy, and the server works again after the directory was moved back.
func TestReadyWithoutItsDirectory(t *testing.T) {
	var dir string
	s := testserver.Start(t, func(c *server.Config) {
		dir = c.DataDir
		c.InsecureHTTP = true // so that the test does not read the CA from the directory
	})
	admin := s.Admin(t)
	rig.Must(t, os.Rename(dir, dir+".away"))
	_, err := admin.MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Status != http.StatusServiceUnavailable {
		t.Errorf("a write: %v", err)
	}
	rig.Soon(t, "the part fails", func() bool {
		p, fails := failing(t, s, "writes")
		return fails && strings.Contains(p.Detail, "data directory was removed or replaced")
	})
	rig.Must(t, os.Rename(dir+".away", dir))
	rig.Soon(t, "it is ready again by itself", func() bool { status, _ := ready(t, s); return status == http.StatusOK })
	_, err = admin.MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	rig.Must(t, err)
}

// TestReadyOnceADatabaseWasStartedAnew checks that failed audit rows do not count after a restart of the database.
// Otherwise the load balancer would send no requests, and no later row could succeed. The clock is so slow that the
// failure does not end by itself.
func TestReadyOnceADatabaseWasStartedAnew(t *testing.T) {
	database := pgtest.Start(t)
	began := time.Now()
	s := testserver.Start(t, func(c *server.Config) {
		c.DatabaseURL = database.Database(t)
		c.Clock = func() time.Time { return began.Add(time.Since(began) / 100) }
	})
	c := s.Client(t, testserver.AdminName, testserver.AdminPassword)
	key, err := c.MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	rig.Must(t, err)
	database.Kill(t)
	if _, err := c.HMAC(t.Context(), key.TTag, strings.NewReader("message")); err == nil {
		t.Fatal("a row was written, and there is no database")
	}
	rig.Soon(t, "the part fails", func() bool { _, fails := failing(t, s, "audit"); return fails })
	database.Restart(t)
	rig.Soon(t, "it is ready again by itself", func() bool { status, _ := ready(t, s); return status == http.StatusOK })
}
