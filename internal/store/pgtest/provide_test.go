package pgtest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/need"
)

// run is a process that stands for a run of tests, with its server.
type run struct {
	cmd  *exec.Cmd
	in   io.Closer
	host string
}

func newRun(t *testing.T) *run {
	t.Helper()
	r := &run{cmd: exec.Command("cat")}
	in, err := r.cmd.StdinPipe()
	rig.Must(t, err)
	r.in = in
	rig.Must(t, r.cmd.Start())
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait() // again, if the test has waited
	})
	r.host, err = pgtest.Provide(r.cmd.Process.Pid)
	rig.Must(t, err)
	return r
}

func (r *run) url(database string) string {
	return fmt.Sprintf("postgres://keyserver@/%s?host=%s", database, r.host)
}

func (r *run) query(t *testing.T, sql string) (answer string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), r.url("postgres"))
	rig.Must(t, err)
	defer conn.Close(context.Background())
	rig.Must(t, conn.QueryRow(t.Context(), sql).Scan(&answer))
	return answer
}

// gone waits until the server has stopped and its directory is removed.
func (r *run) gone(t *testing.T, postmaster string) {
	t.Helper()
	rig.Soon(t, "the directory of the server is removed", func() bool {
		_, err := os.Stat(r.host)
		return errors.Is(err, fs.ErrNotExist)
	})
	rig.Soon(t, "the server has ended", func() bool {
		command, err := os.ReadFile(filepath.Join("/proc", postmaster, "cmdline")) // empty for a zombie
		return err != nil || !bytes.Contains(command, []byte(r.host))
	})
}

// TestAProvidedServerEndsWithTheRun checks that the server stops when a run ends or is killed. A
// killed run stays a zombie.
func TestAProvidedServerEndsWithTheRun(t *testing.T) {
	need.Server(t, "a PostgreSQL server", "make test")
	for name, end := range map[string]func(*run) error{
		"Returns": func(r *run) error { return errors.Join(r.in.Close(), r.cmd.Wait()) },
		"Killed":  func(r *run) error { return r.cmd.Process.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRun(t)
			if got := r.query(t, `SELECT current_setting('fsync') || ' ' || current_setting('synchronous_commit')`); got != "off on" {
				t.Errorf("fsync and synchronous_commit are %s", got)
			}
			// The first line of this file is the process id.
			postmaster, _, _ := strings.Cut(r.query(t, `SELECT pg_read_file('postmaster.pid')`), "\n")
			rig.Must(t, end(r))
			r.gone(t, postmaster)
		})
	}
}

// TestProcessesShareOneServer checks that processes of a run can create databases at the same time,
// from one template.
func TestProcessesShareOneServer(t *testing.T) {
	need.Server(t, "a PostgreSQL server", "make test")
	r := newRun(t)
	const processes = 3
	results := make(chan string, processes)
	for range processes {
		go func() {
			cmd := exec.Command(os.Args[0], "-test.run=^TestProcessOfARun$", "-test.v")
			cmd.Env = append(os.Environ(), "RIG_PG_HOST="+r.host, inRun+"=1")
			out, err := cmd.CombinedOutput()
			if err != nil {
				out = fmt.Appendf(out, "\n%v", err)
			}
			results <- string(out)
		}()
	}
	filled := 0
	for range processes {
		out := <-results
		if !strings.Contains(out, "--- PASS: TestProcessOfARun") {
			t.Error(out)
		}
		filled += strings.Count(out, "made the template")
	}
	if filled != 1 {
		t.Errorf("%d processes made the template", filled)
	}
	if left := r.query(t, `SELECT coalesce(string_agg(datname, ' '), '') FROM pg_database WHERE datname LIKE 'test%'`); left != "" {
		t.Errorf("the tests have left databases: %s", left)
	}
}

// inRun is an environment variable that is set in the processes of TestProcessesShareOneServer.
const inRun = "PGTEST_IN_RUN"

func TestProcessOfARun(t *testing.T) {
	if os.Getenv(inRun) == "" {
		t.Skip("a part of TestProcessesShareOneServer")
	}
	for n := range 3 {
		url := pgtest.Copy(t, "template_of_a_test", func(ctx context.Context, url string) error {
			t.Log("made the template")
			conn, err := pgx.Connect(ctx, url)
			if err != nil {
				return err
			}
			_, err = conn.Exec(ctx, `CREATE TABLE theirs (n INTEGER)`)
			return errors.Join(err, conn.Close(ctx))
		})
		if !strings.Contains(url, os.Getenv("RIG_PG_HOST")) {
			t.Fatalf("database %d is not on the server of the run: %s", n, url)
		}
		execute(t, url, `INSERT INTO theirs VALUES (1)`)
		execute(t, url, `CREATE TABLE mine (n INTEGER)`) // fails if the template, or another copy, has one
	}
}

// TestAPartOfATemplateIsMadeAgain checks that an incomplete template database, as a killed process leaves it, is
// recreated.
func TestAPartOfATemplateIsMadeAgain(t *testing.T) {
	const name = "template_of_half"
	failed := errors.New("failed")
	half := func(ctx context.Context, url string) error {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		_, err = conn.Exec(ctx, `CREATE TABLE half (n INTEGER)`)
		return errors.Join(err, conn.Close(ctx))
	}
	if err := pgtest.Template(t, name, func(ctx context.Context, url string) error { return errors.Join(half(ctx, url), failed) }); !errors.Is(err, failed) {
		t.Fatalf("got %v", err)
	}
	execute(t, pgtest.Copy(t, name, half), `INSERT INTO half VALUES (1)`)
}

// TestCopyOf checks that a copy has the rows of the original, and that writes to the copy stay there.
func TestCopyOf(t *testing.T) {
	original := pgtest.Database(t)
	execute(t, original, `CREATE TABLE theirs (n INTEGER UNIQUE); INSERT INTO theirs VALUES (1)`)
	for range 2 {
		execute(t, pgtest.CopyOf(t, original), `DO $$ BEGIN ASSERT (SELECT count(*) FROM theirs) = 1; END $$; INSERT INTO theirs VALUES (2)`)
	}
}

func TestSuitesOfCrashesHaveDurability(t *testing.T) {
	for name, c := range map[string]struct{ url, want string }{
		"Database":        {pgtest.Database(t), "off"},
		"DurableDatabase": {pgtest.DurableDatabase(t), "on"},
	} {
		conn, err := pgx.Connect(t.Context(), c.url)
		rig.Must(t, err)
		defer conn.Close(context.Background())
		var fsync string
		rig.Must(t, conn.QueryRow(t.Context(), `SHOW fsync`).Scan(&fsync))
		if fsync != c.want {
			t.Errorf("%s: fsync is %s, want %s", name, fsync, c.want)
		}
	}
}
