// Package migrated creates databases with the newest schema for tests, on PostgreSQL and SQLite.
// They are copies of a template, because migrations take longer than most tests.
package migrated

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"sync"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/migrations"
)

// Database creates a PostgreSQL database with the newest schema, and returns its URL. No key
// server has used the database. It is dropped when the test ends.
func Database(t testing.TB) string {
	t.Helper()
	name, err := template()
	if err != nil {
		t.Fatal(err)
	}
	return pgtest.Copy(t, name, migrate)
}

func migrate(ctx context.Context, url string) error {
	s, err := sqlstore.Open(ctx, sqlstore.Config{URL: url})
	if err != nil {
		return err
	}
	return s.Close()
}

// template returns the name of the template. The name depends on the content of the migrations,
// because a server may still have templates of older migrations.
var template = sync.OnceValues(func() (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(migrations.Files, "postgres", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(migrations.Files, path)
		sum.Write([]byte(path))
		sum.Write(text)
		return err
	})
	return "migrated_" + hex.EncodeToString(sum.Sum(nil)[:8]), err
})
