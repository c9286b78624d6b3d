package commands

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// TestCheckBlocks checks that audit verify finds a filter index that does not match its rows.
func TestCheckBlocks(t *testing.T) {
	cfg := sqlstore.Config{Dir: t.TempDir()}
	for _, tc := range []struct{ change, want string }{
		{`SELECT 1`, ""},
		{`INSERT INTO audit_blocks (block, earliest, latest) VALUES (3, 1, 2)`, "blocks [3]"},
	} {
		store, err := sqlstore.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		db, err := sql.Open("sqlite", filepath.Join(cfg.Dir, sqlite.DatabaseFile))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(t.Context(), tc.change); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if store, err = sqlstore.OpenReadOnly(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		err = checkBlocks(t.Context(), store)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.change, err, tc.want)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
