// Package pgbouncer runs PgBouncer as a pooler for a server of package pgtest.
package pgbouncer

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/need"
)

// variable is an environment variable with the path of PgBouncer; hack/provide.sh sets it.
const variable = "RIG_PGBOUNCER"

// Modes of pooling.
const (
	Session     = "session"
	Transaction = "transaction"
	Statement   = "statement"
)

// Start starts a pooler until the test ends. most is the maximum number of its connections to the server. Start returns
// the URL of the database through the pooler.
func Start(t testing.TB, database, mode string, most int) string {
	t.Helper()
	program := os.Getenv(variable)
	if program == "" {
		program = "/usr/sbin/pgbouncer" // path in the Debian package
	}
	if _, err := os.Stat(program); err != nil {
		need.Missing(t, "PgBouncer", "make test, which installs it, or set "+variable)
	}
	u, err := url.Parse(database)
	rig.Must(t, err)
	server := u.Query().Get("host")
	dir, err := os.MkdirTemp("", "pgbouncer-") //nolint:usetesting // a socket's path must be short
	rig.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	config := filepath.Join(dir, "pgbouncer.ini")
	rig.Must(t, os.WriteFile(config, fmt.Appendf(nil, `[databases]
* = host=%s user=%s
[pgbouncer]
listen_addr =
unix_socket_dir = %s
auth_type = any
pool_mode = %s
default_pool_size = %d
max_client_conn = 500
server_login_retry = 1
`, server, u.User.Username(), dir, mode, most), 0o644))
	// Run PgBouncer as the user of the server: it refuses to run as root, and only that
	// user can use the socket.
	var owner syscall.Stat_t
	rig.Must(t, syscall.Stat(server, &owner))
	cmd := exec.Command(program, config)
	cmd.SysProcAttr = rig.EndWithTest(syscall.SIGKILL)
	if os.Getuid() == 0 {
		rig.Must(t, os.Chown(dir, int(owner.Uid), int(owner.Gid)))
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
	}
	log := &rig.Output{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatalf("pgbouncer: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log)
		}
	})
	through := fmt.Sprintf("postgres://%s@%s?host=%s&port=6432", u.User.Username(), u.Path, dir)
	rig.Succeeds(t, func() error {
		conn, err := pgx.Connect(t.Context(), through)
		if err != nil {
			return err
		}
		return conn.Close(context.Background())
	})
	return through
}
