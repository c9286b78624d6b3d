package sqlstore_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestTheDirectoryIsTakenAway checks that writes fail while the database files are moved
// away, and succeed when the files are back.
func TestTheDirectoryIsTakenAway(t *testing.T) {
	move := func(name string) func(*testing.T, string, string) {
		return func(t *testing.T, dir, elsewhere string) {
			rig.Must(t, os.Rename(filepath.Join(dir, name), filepath.Join(elsewhere, "moved")))
		}
	}
	back := func(name string) func(*testing.T, string, string) {
		return func(t *testing.T, dir, elsewhere string) {
			rig.Must(t, os.RemoveAll(filepath.Join(dir, name)))
			rig.Must(t, os.Rename(filepath.Join(elsewhere, "moved"), filepath.Join(dir, name)))
		}
	}
	for name, c := range map[string]struct {
		away, back func(t *testing.T, dir, elsewhere string)
	}{
		"Removed":     {away: func(t *testing.T, dir, _ string) { rig.Must(t, os.RemoveAll(dir)) }},
		"Moved":       {move(""), back("")},
		"TheDatabase": {move("keyserver.db"), back("keyserver.db")},
		"TheJournal":  {move("audit.journal"), back("audit.journal")},
		"TheLog":      {move("keyserver.db-wal"), back("keyserver.db-wal")},
		"AnotherOne": {func(t *testing.T, dir, elsewhere string) {
			move("")(t, dir, elsewhere)
			rig.Must(t, os.CopyFS(dir, os.DirFS(filepath.Join(elsewhere, "moved"))))
		}, back("")},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			var log rig.Output
			d := database{config: sqlstore.Config{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))}}
			s := d.open(t)
			w := openWriter(t, s, audit.Options{})
			t.Cleanup(func() { _, _ = w.Close(), s.Close() })
			update(t, s, insertRole(role(1, "before")))
			rig.Must(t, w.Write(t.Context(), row("hmacData", "", 1)))

			elsewhere := t.TempDir()
			c.away(t, dir, elsewhere)
			for range 2 {
				if err := tryUpdate(t, s, insertRole(role(2, "away"))); fault.CodeOf(err) != fault.StoreUnavailable {
					t.Errorf("an update: %v", err)
				}
				if err := w.Write(t.Context(), row("hmacData", "", 1)); fault.CodeOf(err) != fault.AuditUnavailable {
					t.Errorf("an audit row: %v", err)
				}
				if err := s.Writable(t.Context()); fault.As(err) == nil || !strings.Contains(fault.As(err).Detail, "data directory") {
					t.Errorf("writable: %v", err)
				}
			}
			if n := strings.Count(log.String(), "level=ERROR msg=\"the data directory was removed"); n != 1 {
				t.Errorf("logged %d times:\n%s", n, log.String())
			}
			if c.back == nil {
				return
			}
			c.back(t, dir, elsewhere)
			update(t, s, insertRole(role(2, "back")))
			rig.Must(t, w.Write(t.Context(), row("hmacData", "", 1)))
			closeWriter(t, w)
			closeStore(t, s)
			if report := readOnly(t, d); !report.Intact() || report.Rows != 2 {
				t.Errorf("the trail: %+v", report)
			}
		})
	}
}
