package migrated_test

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest/migrated"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// TestDir checks that opening a copy migrates nothing, and that two copies are
// separate databases.
func TestDir(t *testing.T) {
	one, other := migrated.Dir(t), migrated.Dir(t)
	if one == other {
		t.Fatalf("two tests share %s", one)
	}
	var log bytes.Buffer
	s, err := sqlstore.Open(t.Context(), sqlstore.Config{Dir: one, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if strings.Contains(log.String(), "migrated") {
		t.Errorf("the copy was not migrated: %s", log.String())
	}
	if files, err := os.ReadDir(other); err != nil || len(files) != 1 {
		t.Errorf("an unused copy has the files %v, %v", files, err)
	}
}
