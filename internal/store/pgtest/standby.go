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

// Standby starts a server that follows this one, of its own data. Its name is what the
// primary may list in synchronous_standby_names.
func (c *Cluster) Standby(t testing.TB, name string) *Cluster {
	t.Helper()
	s, err := prepare(c.settings, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	// The connection string may name itself in what the standby is told to use.
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

// Freeze stops every process of the server, as a machine does that is gone without a
// word: connections stay, new ones are accepted, and nothing is answered.
// It is killed when the test ends.
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

// SQL runs a statement as the superuser, in no database of a test.
func (c *Cluster) SQL(t testing.TB, statement string) {
	t.Helper()
	if err := c.sql(statement); err != nil {
		t.Fatalf("pgtest: %s: %v", statement, err)
	}
}

// On is the URL of a database of the first of some servers that takes writes.
func On(url string, servers ...*Cluster) string {
	base, _, _ := strings.Cut(url, "?")
	dirs := make([]string, len(servers))
	for i, s := range servers {
		dirs[i] = s.dir
	}
	return base + "?host=" + strings.Join(dirs, ",") + "&target_session_attrs=read-write"
}

// URL is that of a database that belongs to no test.
func (c *Cluster) URL() string { return c.url("postgres") }

// Disk is a small volume of the server's own. A test is skipped where nothing can be
// mounted: no other way fills a disk and harms nobody else.
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

// DatabaseOn makes an empty database on a volume, and answers its URL.
func (c *Cluster) DatabaseOn(t testing.TB, disk string) string {
	t.Helper()
	c.SQL(t, "CREATE TABLESPACE own LOCATION '"+disk+"'")
	url := c.Database(t)
	c.SQL(t, "ALTER DATABASE "+databaseOf(url)+" SET TABLESPACE own")
	return url
}
