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

// hostVariable names the directory of the socket of the server for the entire run;
// hack/provide.sh sets it.
const hostVariable = "RIG_PG_HOST"

// shared is a server that the first test to need it starts or finds.
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
// database, and fill closes its connections. Templates with the same name are the same.
func Copy(t testing.TB, template string, fill func(ctx context.Context, url string) error) string {
	t.Helper()
	c := fastOne(t)
	if err := c.template(template, fill); err != nil {
		t.Fatalf("pgtest: create the template %s: %v", template, err)
	}
	return c.create(t, template)
}

// CopyOf creates a database on the shared server as a copy of another one there, and returns
// its URL. No connection to the other one may be open. The copy is dropped when the test ends.
func CopyOf(t testing.TB, url string) string {
	t.Helper()
	return fastOne(t).create(t, databaseOf(url))
}

// share keeps connections to the server open, because a new one costs as much as the
// creation of a database does.
func (c *Cluster) share() error {
	cfg, err := pgx.ParseConfig(c.url("postgres"))
	if err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	c.db = stdlib.OpenDB(*cfg)
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	// Without fsync, copying the files takes a quarter of the work of the default, which
	// writes a log of the copy. Older servers only have the default.
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
// Server and directory are removed when the process owner ends, however it ends.
func Provide(owner int) (host string, err error) {
	c, err := start(fast, owner)
	if err != nil {
		return "", err
	}
	return c.dir, nil
}

// template creates a template unless it exists. Of several processes one creates it, and
// the others wait. The database is a template for the server only once it is complete.
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
