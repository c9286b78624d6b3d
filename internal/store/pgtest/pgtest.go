// Package pgtest creates databases on PostgreSQL servers for tests. It starts the servers
// from the binaries on the machine. Each server listens on a Unix socket in its own directory.
//
// Most tests share one server without durability. If hostVariable is set, all test binaries
// of a run share that server; otherwise it belongs to this test binary. Benchmarks and tests
// of crashes, faults and backups use servers with durability as in production:
// DurableDatabase, or Start if a test kills or configures the server.
//
// If the binaries are missing, tests fail in a make target, and are skipped with "go test".
// With -short (make check), all these tests are skipped.
package pgtest

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyserver-operator/keyserver-operator/test/rig/need"
)

// startTimeout is the time limit for a server to start or stop.
const startTimeout = time.Minute

// superuser is the database user that owns the databases of all tests.
const superuser = "keyserver"

// Settings of servers with and without durability. Most tests do not need fsync: if only a process is killed, the
// kernel still writes its data to the disk.
var (
	durable = []string{"fsync=on", "max_connections=200", "shared_buffers=32MB"}
	fast    = []string{"fsync=off", "full_page_writes=off", "max_connections=1000", "shared_buffers=128MB"}
)

// Cluster is a PostgreSQL server that a test may kill.
type Cluster struct {
	dir      string // directory of the socket, the data and the log
	settings []string
	bin      string
	as       *syscall.Credential // user of the server; nil: the user of the test
	janitor  io.Closer

	postmaster *exec.Cmd     // nil while the server is stopped
	exited     chan struct{} // closed when the postmaster has ended
	foreign    bool          // another process started the server

	db       *sql.DB // connections to a shared server, outside of the databases of tests
	strategy string  // clause STRATEGY of CREATE DATABASE, or empty

	mu        sync.Mutex
	templates map[string]bool // names of the templates that are known to exist
}

// Start starts a server that belongs to one test.
func Start(t testing.TB) *Cluster {
	t.Helper()
	needServer(t)
	c, err := start(durable, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c
}

// needServer skips a test with -short. Without PostgreSQL, it skips the test or fails.
func needServer(t testing.TB) {
	t.Helper()
	need.Server(t, "a PostgreSQL server", "make test")
	if os.Getenv(hostVariable) != "" {
		return
	}
	if _, err := binaries(); errors.Is(err, errNone) {
		need.Missing(t, "PostgreSQL's server", "make test, which installs it, or set RIG_PG_BIN to the directory of initdb and postgres")
	}
}

// start starts a server. The server stops when the process with the id owner ends, or, if
// owner is 0, when this process ends.
func start(settings []string, owner int) (*Cluster, error) {
	c, err := prepare(settings, owner)
	if err != nil {
		return nil, err
	}
	if out, err := c.command("initdb", "--pgdata", c.data(), "--username", superuser, "--auth", "trust",
		"--encoding", "UTF8", "--no-locale", "--no-sync", "--no-instructions").CombinedOutput(); err != nil {
		c.close()
		return nil, fmt.Errorf("pgtest: initdb: %w\n%s", err, out)
	}
	if err := c.run(); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// prepare creates the directory of a server without data.
func prepare(settings []string, owner int) (*Cluster, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	c := &Cluster{bin: bin, settings: settings}
	if c.as, err = unprivileged(); err != nil {
		return nil, err
	}
	// Not t.TempDir: a socket's path must be short.
	if c.dir, err = os.MkdirTemp("", "pgtest-"); err != nil {
		return nil, fmt.Errorf("pgtest: %w", err)
	}
	if c.as != nil {
		if err := os.Chown(c.dir, int(c.as.Uid), int(c.as.Gid)); err != nil {
			return nil, fmt.Errorf("pgtest: %w", err)
		}
	}
	return c, c.employJanitor(owner)
}

// Database creates an empty database and returns its URL. The database is dropped when the test ends.
func (c *Cluster) Database(t testing.TB) string {
	t.Helper()
	return c.create(t, "template1")
}

func (c *Cluster) create(t testing.TB, template string) string {
	t.Helper()
	name := fmt.Sprintf("test_%d_%d", os.Getpid(), databases.Add(1))
	if err := c.sql("CREATE DATABASE " + name + " TEMPLATE " + template + c.strategy); err != nil {
		t.Fatalf("pgtest: create a database: %v", err)
	}
	t.Cleanup(func() {
		if c.postmaster == nil && !c.foreign {
			return
		}
		if err := c.sql("DROP DATABASE " + name + " WITH (FORCE)"); err != nil {
			t.Errorf("pgtest: drop the database: %v", err)
		}
	})
	return c.url(name)
}

// Kill kills every process of the server, like a crash.
func (c *Cluster) Kill(t testing.TB) {
	t.Helper()
	if c.postmaster == nil {
		t.Fatal("pgtest: the server does not run")
	}
	// Kill each backend, too: a backend runs until it notices the end of the server.
	postmaster := c.postmaster.Process.Pid
	victims := append([]int{postmaster}, children(postmaster)...)
	for _, pid := range victims {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-c.exited
	c.postmaster = nil
	// Kill backends that were starting and not in the list. They would block the next server.
	for left := c.Processes(); len(left) > 0; left = c.Processes() {
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Processes lists the processes of the server: its directory is their working directory.
func (c *Cluster) Processes() []int {
	var pids []int
	places, _ := filepath.Glob("/proc/[0-9]*/cwd") // only a malformed pattern fails
	for _, place := range places {
		if dir, err := os.Readlink(place); err != nil || dir != c.data() {
			continue // the process has ended, or is another program
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(place))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// children lists the processes that a process has started.
func children(parent int) []int {
	var pids []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // only a malformed pattern fails
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the process has ended
		}
		// "pid (name) state ppid ..."; the name may contain any character.
		_, rest, _ := strings.Cut(string(text[bytes.LastIndexByte(text, ')')+1:]), " ")
		fields := strings.Fields(rest)
		if len(fields) < 2 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Restart starts the server again after Kill, on the same data.
func (c *Cluster) Restart(t testing.TB) {
	t.Helper()
	// A new server cannot start before the processes of the old server have ended.
	var err error
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if err = c.run(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

func (c *Cluster) data() string { return filepath.Join(c.dir, "data") }

func (c *Cluster) url(database string) string {
	return fmt.Sprintf("postgres://%s@/%s?host=%s", superuser, database, c.dir)
}

// databaseOf returns the name of the database in a URL of a Cluster.
func databaseOf(url string) string {
	_, rest, _ := strings.Cut(url, "@/")
	name, _, _ := strings.Cut(rest, "?")
	return name
}

func (c *Cluster) sql(statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if c.db != nil {
		_, err := c.db.ExecContext(ctx, statement)
		return err
	}
	conn, err := pgx.Connect(ctx, c.url("postgres"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

// run starts the postmaster and waits until it responds.
func (c *Cluster) run() error {
	log, err := os.OpenFile(filepath.Join(c.dir, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	defer log.Close() //nolint:errcheck // the server has its own descriptor
	args := []string{"-D", c.data(), "-k", c.dir, "-c", "listen_addresses="}
	for _, setting := range c.settings {
		args = append(args, "-c", setting)
	}
	cmd := c.command("postgres", args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("pgtest: start postgres: %w", err)
	}
	exited := make(chan struct{})
	c.exited = exited
	go func() {
		_ = cmd.Wait() // the log of the server says how it ended
		close(exited)
	}()
	c.postmaster = cmd
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(20 * time.Millisecond) {
		err := c.sql("SELECT 1")
		if err == nil {
			return nil
		}
		gone := false
		select {
		case <-exited:
			gone, c.postmaster = true, nil
		default:
		}
		if gone || time.Now().After(deadline) {
			return fmt.Errorf("pgtest: postgres does not start: %w\n%s", err, c.Log())
		}
	}
}

// close makes the janitor stop the server and remove its directory.
func (c *Cluster) close() {
	_ = c.janitor.Close()
	if c.postmaster != nil {
		<-c.exited
		c.postmaster = nil
	}
}

// employJanitor starts a shell, the janitor. The janitor waits for Close or the end of the process with the id owner,
// and then stops the server and removes the directory. If owner is 0, the janitor waits for the end of this process,
// which closes the input of the shell.
func (c *Cluster) employJanitor(owner int) error {
	// A zombie process counts as ended.
	const script = `
alive() { kill -0 "$1" 2>/dev/null && ! grep -q "^State:[[:space:]]*Z" "/proc/$1/status" 2>/dev/null; }
clean() {
	if pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null); then
		kill -QUIT "$pid" 2>/dev/null
		for _ in $(seq 100); do alive "$pid" || break; sleep 0.1; done
		kill -KILL "$pid" 2>/dev/null
	fi
	for _ in $(seq 100); do rm -rf "$1" && break; sleep 0.1; done
	exit
}
if [ "$2" = 0 ]; then
	read -r _
else
	trap 'clean "$1"' TERM
	while alive "$2"; do sleep 1; done
fi
clean "$1"`
	cmd := exec.Command("/bin/sh", "-c", script, "pgtest-janitor", c.dir, strconv.Itoa(owner))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the terminal must not reach the shell
	if owner != 0 {
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("pgtest: %w", err)
		}
		c.janitor = closer(func() error { return errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()) })
		return nil
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	c.janitor = closer(func() error { return errors.Join(in.Close(), cmd.Wait()) })
	return nil
}

type closer func() error

func (f closer) Close() error { return f() }

func (c *Cluster) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(c.bin, name), args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: c.as}
	return cmd
}

var errNone = errors.New("pgtest: no PostgreSQL server binaries")

// binaries returns the directory of the server's binaries: RIG_PG_BIN, a directory in PATH,
// or the newest Debian package.
func binaries() (string, error) {
	if dir := os.Getenv("RIG_PG_BIN"); dir != "" {
		if !complete(dir) {
			return "", fmt.Errorf("pgtest: RIG_PG_BIN is %s, which does not have both initdb and postgres", dir)
		}
		return dir, nil
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil && complete(filepath.Dir(path)) {
			return filepath.Dir(path), nil
		}
	}
	newest, best := 0, ""
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // only a malformed pattern fails
	for _, dir := range found {
		version, err := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
		if err == nil && version > newest && complete(dir) {
			newest, best = version, dir
		}
	}
	if best == "" {
		return "", errNone
	}
	return best, nil
}

func complete(dir string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

// unprivileged returns the user that runs the server, because PostgreSQL refuses to run as root.
func unprivileged() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	names := []string{"postgres", "nobody"}
	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if errors.Join(err, err2) == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), NoSetGroups: false}, nil
		}
	}
	return nil, fmt.Errorf("pgtest: PostgreSQL cannot run as root, and this machine has none of the users %q", names)
}

// Log returns the log of the server, for a test that fails.
func (c *Cluster) Log() string {
	text, _ := os.ReadFile(filepath.Join(c.dir, "log"))
	return strings.TrimSpace(string(bytes.ToValidUTF8(text, nil)))
}
