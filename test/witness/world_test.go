// Package witness tests that complete key servers verify each other's audit trees. It plants violations of a log's
// rules in a running federation.
package witness

import (
	"bytes"
	"database/sql"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	cosignature "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest/migrated"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// interval is the checkpoint interval of every server in this package.
const interval = 500 * time.Millisecond

// databases are the databases that the main tests run on.
var databases = map[string]func(testing.TB) testserver.Option{
	"SQLite": func(testing.TB) testserver.Option { return func(*server.Config) {} },
	"PostgreSQL": func(t testing.TB) testserver.Option {
		url := migrated.Database(t)
		return func(c *server.Config) { c.DatabaseURL = url }
	},
}

// site is a key server. A test can open its database directly.
type site struct {
	*testserver.Server
	at server.Config
}

func open(t testing.TB, options ...testserver.Option) *site {
	t.Helper()
	s := &site{}
	s.Server = testserver.Start(t, append(options, func(c *server.Config) { c.CheckpointInterval = interval }, func(c *server.Config) { s.at = *c })...)
	return s
}

// database opens the database while the server runs.
func (s *site) database(t testing.TB) *sql.DB {
	t.Helper()
	file := url.URL{Scheme: "file", OmitHost: true, Path: filepath.Join(s.at.DataDir, "keyserver.db"), RawQuery: "_busy_timeout=10000"}
	driver, source := "sqlite", file.String()
	if s.at.DatabaseURL != "" {
		driver, source = "pgx", s.at.DatabaseURL
	}
	db, err := sql.Open(driver, source)
	rig.Must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// head returns a stored tree head by its name.
func head(t testing.TB, db *sql.DB, name string) (size int64, checkpoint []byte) {
	t.Helper()
	err := db.QueryRowContext(t.Context(), `SELECT size, checkpoint FROM audit_tree WHERE name = '`+name+`'`).Scan(&size, &checkpoint)
	if err != nil && err != sql.ErrNoRows {
		t.Fatal(err)
	}
	return size, checkpoint
}

func (s *site) write(t testing.TB, n int) {
	t.Helper()
	admin := s.Admin(t)
	for range n {
		if _, err := admin.ListRoles(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// until waits until ok returns true. A request to a witness can take ten seconds.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: it does not come about", what)
		}
	}
}

// signed reports whether a checkpoint has a cosignature by a key.
func signed(t testing.TB, checkpoint []byte, key string) bool {
	t.Helper()
	v, err := cosignature.NewVerifierForCosignatureV1(key)
	rig.Must(t, err)
	_, err = note.Open(bytes.Clone(checkpoint), note.VerifierList(v))
	return err == nil
}
