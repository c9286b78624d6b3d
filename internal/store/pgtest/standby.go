package pgtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// Standby starts a standby of this server. name is its name in the setting
// synchronous_standby_names of the primary.
func (c *Cluster) Standby(t testing.TB, name string) *Cluster {
	t.Helper()
	s, err := prepare(c.settings, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	// pg_basebackup writes the name to the configuration of the standby.
	source := fmt.Sprintf("host=%s user=%s application_name=%s", c.dir, superuser, name)
	out, err := s.command("pg_basebackup", "--pgdata", s.data(), "--dbname", source, "--write-recovery-conf", "--checkpoint=fast", "--no-sync").CombinedOutput()
	if err != nil {
		t.Fatalf("pgtest: pg_basebackup: %v\n%s", err, out)
	}
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
	return s
}

// Promote makes a standby the primary.
func (c *Cluster) Promote(t testing.TB) {
	t.Helper()
	c.SQL(t, "SELECT pg_promote()")
}

// Freeze stops every process of the server, like a machine that disappears: its connections
// stay open, and new connections are accepted, but there are no responses. The server is
// killed when the test ends.
func (c *Cluster) Freeze(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		if c.postmaster != nil {
			c.Kill(t)
		}
	})
	if c.postmaster == nil {
		t.Fatal("pgtest: the server does not run")
	}
	postmaster := c.postmaster.Process.Pid
	for _, pid := range append([]int{postmaster}, children(postmaster)...) {
		_ = syscall.Kill(pid, syscall.SIGSTOP) // a backend may just have ended
	}
}

// SQL runs a statement as the superuser in the database postgres.
func (c *Cluster) SQL(t testing.TB, statement string) {
	t.Helper()
	if err := c.sql(statement); err != nil {
		t.Fatalf("pgtest: %s: %v", statement, err)
	}
}

// On returns a URL with the hosts of several servers. Clients use the first host that accepts writes.
func On(url string, servers ...*Cluster) string {
	base, _, _ := strings.Cut(url, "?")
	dirs := make([]string, len(servers))
	for i, s := range servers {
		dirs[i] = s.dir
	}
	return base + "?host=" + strings.Join(dirs, ",") + "&target_session_attrs=read-write"
}

// URL returns the URL of the database postgres.
func (c *Cluster) URL() string { return c.url("postgres") }

// Disk mounts a small volume for the server, so that a test can fill the volume without an
// effect on other programs. It skips the test if nothing can be mounted.
func (c *Cluster) Disk(t testing.TB, size int) (dir string) {
	t.Helper()
	dir = filepath.Join(c.dir, "disk")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	options := fmt.Sprintf("size=%d,mode=0700", size)
	if c.as != nil {
		options += fmt.Sprintf(",uid=%d,gid=%d", c.as.Uid, c.as.Gid)
	}
	if err := rig.Tmpfs(t, dir, options); err != nil {
		t.Skipf("this machine does not let a test mount a small volume: %v", err)
	}
	return dir
}

// DatabaseOn creates an empty database on a volume, and returns its URL.
func (c *Cluster) DatabaseOn(t testing.TB, disk string) string {
	t.Helper()
	c.SQL(t, "CREATE TABLESPACE own LOCATION '"+disk+"'")
	url := c.Database(t)
	c.SQL(t, "ALTER DATABASE "+databaseOf(url)+" SET TABLESPACE own")
	return url
}
