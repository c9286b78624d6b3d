package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// hostVariable is an environment variable with the socket directory of the server for the
// entire run. hack/provide.sh sets it.
const hostVariable = "RIG_PG_HOST"

// shared is a server for several tests. The first of these tests starts the server, or connects to a running server.
type shared struct {
	sync.Once
	cluster *Cluster
	err     error
}

func (s *shared) get(t testing.TB, open func() (*Cluster, error)) *Cluster {
	t.Helper()
	needServer(t)
	s.Do(func() {
		if s.cluster, s.err = open(); s.err == nil {
			s.err = s.cluster.share()
		}
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.cluster
}

var fastServer, durableServer shared

func fastOne(t testing.TB) *Cluster {
	t.Helper()
	if _, measures := t.(*testing.B); measures {
		return durableOne(t)
	}
	return fastServer.get(t, func() (*Cluster, error) {
		if host := os.Getenv(hostVariable); host != "" {
			return &Cluster{dir: host, foreign: true}, nil
		}
		return start(fast, 0)
	})
}

func durableOne(t testing.TB) *Cluster {
	t.Helper()
	return durableServer.get(t, func() (*Cluster, error) { return start(durable, 0) })
}

var databases atomic.Int64

// Database creates an empty database on the shared server and returns its URL. The
// database is dropped when the test ends. A benchmark gets a DurableDatabase.
func Database(t testing.TB) string {
	t.Helper()
	return fastOne(t).Database(t)
}

// DurableDatabase creates an empty database on a server with durability on and returns
// its URL. The server belongs to the test binary.
func DurableDatabase(t testing.TB) string {
	t.Helper()
	return durableOne(t).Database(t)
}

// Copy creates a database on the shared server as a copy of a template and returns its
// URL. The first process that needs the template calls fill with the URL of an empty
// database. fill must close its connections. Other calls with the same name use the same
// template.
func Copy(t testing.TB, template string, fill func(ctx context.Context, url string) error) string {
	t.Helper()
	c := fastOne(t)
	if err := c.template(template, fill); err != nil {
		t.Fatalf("pgtest: create the template %s: %v", template, err)
	}
	return c.create(t, template)
}

// CopyOf creates a copy of a database on the shared server, and returns its URL. No connection
// to the original may be open. The copy is dropped when the test ends.
func CopyOf(t testing.TB, url string) string {
	t.Helper()
	return fastOne(t).create(t, databaseOf(url))
}

// share opens a pool of connections to the server, because a new connection takes as long as
// the creation of a database.
func (c *Cluster) share() error {
	cfg, err := pgx.ParseConfig(c.url("postgres"))
	if err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	c.db = stdlib.OpenDB(*cfg)
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	// Without fsync, a copy of the files takes a quarter of the time of the default strategy,
	// which logs the copy. Older servers have only the default.
	var copies bool
	err = c.db.QueryRowContext(ctx, "SELECT current_setting('fsync') = 'off' AND current_setting('server_version_num')::int >= 150000").Scan(&copies)
	switch {
	case err != nil && c.foreign:
		return fmt.Errorf("pgtest: %s is %q, but no server responds there; unset it: %w", hostVariable, c.dir, err)
	case err != nil:
		return fmt.Errorf("pgtest: %w", err)
	case copies:
		c.strategy = " STRATEGY file_copy"
	}
	return nil
}

// Provide starts a server for an entire run of tests and returns the directory of its socket.
// When the process with the id owner ends, the server stops and the directory is removed.
func Provide(owner int) (host string, err error) {
	c, err := start(fast, owner)
	if err != nil {
		return "", err
	}
	return c.dir, nil
}

// template creates a template unless it exists. If several processes call it, one creates the template and the other
// processes wait. The database is marked as a template when it is complete.
func (c *Cluster) template(name string, fill func(ctx context.Context, url string) error) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.templates[name] {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.url("postgres"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }() // this releases the lock
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtext($1))", name); err != nil {
		return err
	}
	var complete bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1 AND datistemplate)", name).Scan(&complete); err != nil {
		return err
	}
	if !complete {
		// A killed process may have left an incomplete template.
		for _, statement := range []string{"DROP DATABASE IF EXISTS " + name + " WITH (FORCE)", "CREATE DATABASE " + name} {
			if _, err := conn.Exec(ctx, statement); err != nil {
				return err
			}
		}
		if err := fill(ctx, c.url(name)); err != nil {
			return err
		}
		// A database cannot be copied while a connection to it is open.
		if _, err := conn.Exec(ctx, "ALTER DATABASE "+name+" WITH IS_TEMPLATE true ALLOW_CONNECTIONS false"); err != nil {
			return err
		}
	}
	if c.templates == nil {
		c.templates = map[string]bool{}
	}
	c.templates[name] = true
	return nil
}
