package archive_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/archive"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// keeper runs the passes of an archiver one by one.
type keeper struct {
	*archive.Archiver
	alarms, records []string
}

func (h *house) keeper(dir string, retention time.Duration) *keeper {
	k := &keeper{}
	k.Archiver = archive.New(archive.Config{
		Store: h.Store, URL: "file://" + dir + "?create_dir=true", Retention: retention, Key: h.signer.Verifier,
		Clock: func() time.Time { return h.at }, Logger: slog.New(slog.DiscardHandler),
		MayPrune: func(context.Context, int64) (bool, error) { return true, nil },
		Record:   func(_ context.Context, rows string) error { k.records = append(k.records, rows); return nil },
		Alarm:    func(problem string) { k.alarms = append(k.alarms, problem) },
	})
	return k
}

func (k *keeper) passes(ctx context.Context) error {
	for {
		more, err := archive.Pass(ctx, k.Archiver)
		if err != nil || !more {
			return err
		}
	}
}

// TestRetention checks that rows are removed when they are old, archived and read back, and that a request for a
// removed row returns the error that the row is archived.
func TestRetention(t *testing.T) {
	bothDatabases(t, func(t *testing.T, cfg sqlstore.Config) {
		h := newHouse(t, cfg)
		h.write(t, archive.Rows+300)
		dir := filepath.Join(t.TempDir(), "archive")
		k := h.keeper(dir, 24*time.Hour)
		extent := func(first, archived int64) {
			t.Helper()
			if e, err := h.AuditExtent(t.Context()); err != nil || e.First != first || e.Archived != archived {
				t.Fatalf("%+v, %v, want %d and %d", e, err, first, archived)
			}
		}
		if err := k.passes(t.Context()); err != nil {
			t.Fatal(err)
		}
		extent(1, archive.Rows) // no row is old enough
		h.at = h.at.Add(25 * time.Hour)

		k.MayPrune = func(_ context.Context, last int64) (bool, error) { return last < archive.Rows, nil }
		if err := k.passes(t.Context()); err != nil {
			t.Fatal(err)
		}
		extent(1, archive.Rows)
		k.MayPrune = func(context.Context, int64) (bool, error) { return true, nil }

		rows := filepath.Join(dir, name(0, ".rows.zst"))
		flip(t, rows)
		if err := k.passes(t.Context()); !errors.Is(err, archive.ErrDamaged) {
			t.Fatalf("what cannot be read back: %v", err)
		}
		extent(1, archive.Rows)
		flip(t, rows)
		if err := os.Chmod(rows, 0); err == nil && os.Getuid() != 0 {
			if err := k.passes(t.Context()); err == nil {
				t.Error("what cannot be read is pruned")
			}
		}

		old, err := h.AuditRange(t.Context(), 99, 100, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := k.passes(t.Context()); err != nil {
			t.Fatal(err)
		}
		extent(archive.Rows+1, archive.Rows)
		if len(k.records) != 1 || k.records[0] != "1-65536" || len(k.alarms) != 0 {
			t.Errorf("%v, %v", k.records, k.alarms)
		}
		h.answers(t, &old[0])
		h.write(t, 10)
		verified(t, h, archive.Rows+1, 310)
		noted := audit.Head{Chain: old[0].Chain, Position: old[0].Position, Hash: old[0].Hash}
		if report, err := audit.Verify(t.Context(), h.Store, noted); err != nil || report.Total != 1 || !strings.HasPrefix(report.Findings[0].Problem, "archived: ") {
			t.Errorf("a head that was noted and is archived: %+v, %v", report, err)
		}

		h.write(t, archive.Rows)
		if err := h.keeper(filepath.Join(t.TempDir(), "another"), 0).passes(t.Context()); err == nil || !strings.Contains(err.Error(), "name the archive that has the segment") {
			t.Errorf("another archive: %v", err)
		}
		if err := k.passes(t.Context()); err != nil {
			t.Fatal(err)
		}
		done, err := archive.Verify(t.Context(), open(t, dir), h.signer.Verifier)
		if err != nil || done.Segments != 2 {
			t.Errorf("%+v, %v", done, err)
		}
	})
}

// late is a store that returns the newest tree only after several reads.
type late struct {
	*sqlstore.Store
	ask func()
}

func (l *late) AuditTree(ctx context.Context) (audit.TreeHead, error) {
	l.ask()
	return l.Store.AuditTree(ctx)
}

// TestTheTreeHasWhatIsSaidFirst checks that rows are removed only after the tree contains the audit row about the
// removal.
func TestTheTreeHasWhatIsSaidFirst(t *testing.T) {
	h := newHouse(t, sqlstore.Config{Dir: t.TempDir()})
	h.write(t, archive.Rows)
	k := h.keeper(filepath.Join(t.TempDir(), "archive"), time.Hour)
	if err := k.passes(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.at = h.at.Add(2 * time.Hour)
	recorded := false
	k.Record = func(ctx context.Context, rows string) error {
		recorded = true
		w, err := audit.NewWriter(ctx, h.Store, audit.Options{})
		if err != nil {
			return err
		}
		return errors.Join(w.Write(ctx, keyserver.AuditEntry{Operation: keyserver.AuditPruned, Outcome: keyserver.Allowed, Kind: keyserver.InternalSession, Object: rows}), w.Close())
	}
	asked := 0
	k.Store = &late{Store: h.Store, ask: func() {
		if !recorded {
			return
		}
		if asked++; asked == 3 {
			h.grow(t)
		}
		if e, err := h.AuditExtent(t.Context()); asked <= 3 && (err != nil || e.First != 1) {
			t.Errorf("%+v, %v: the rows are gone, and the tree does not say so", e, err)
		}
	}}
	if err := k.passes(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e, err := h.AuditExtent(t.Context()); err != nil || e.First != archive.Rows+1 || asked < 3 {
		t.Fatalf("%+v, %v, asked %d times", e, err, asked)
	}
}

// answers checks the responses for archived rows and for other rows.
func (h *house) answers(t *testing.T, old *keyserver.AuditEntry) {
	t.Helper()
	page, err := h.AuditRows(t.Context(), keyserver.AuditFilter{})
	if err != nil || page.ArchivedBefore != archive.Rows+1 || page.Entries[0].Seq != archive.Rows+1 {
		t.Errorf("the first page: %v", err)
	}
	for after, refused := range map[int64]bool{1: true, archive.Rows - 1: true, archive.Rows: false, archive.Rows + 10: false} {
		_, err := h.AuditRows(t.Context(), keyserver.AuditFilter{After: after})
		if errors.Is(err, errArchived) != refused || !refused && err != nil {
			t.Errorf("behind %d: %v", after, err)
		}
		if refused && (!strings.Contains(err.Error(), "segment "+name(0, "")) || !strings.Contains(err.Error(), "audit show --archive")) {
			t.Errorf("behind %d: %v", after, err)
		}
	}
	grown := tree.New(tree.Config{Store: h.Store, Signer: h.signer, Recent: tree.NewRecent(), Clock: time.Now})
	if _, err := grown.Entries(t.Context(), 0, 256); !errors.Is(err, errArchived) {
		t.Errorf("the bundle of rows that are archived: %v", err)
	}
	if _, err := grown.Entries(t.Context(), archive.Rows/256, 256); err != nil {
		t.Error(err)
	}
	receipt, err := grown.Receipt(t.Context(), old.Seq)
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.VerifyReceipt(receipt, old, h.signer.Verifier); err != nil {
		t.Errorf("the receipt of a row that is archived: %v", err)
	}
}

func verified(t *testing.T, h *house, first, rows int64) {
	t.Helper()
	report, err := audit.Verify(t.Context(), h.Store)
	if err != nil || !report.Intact() || report.First != first || report.Rows < rows {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestWhatWasArchivedIsStillThere checks that the archiver checks the archive at the start and every hour, even if
// there is nothing to archive.
func TestWhatWasArchivedIsStillThere(t *testing.T) {
	h := newHouse(t, sqlstore.Config{Dir: t.TempDir()})
	h.write(t, archive.Rows+1)
	dir := filepath.Join(t.TempDir(), "archive")
	k := h.keeper(dir, 0)
	if err := k.passes(t.Context()); err != nil {
		t.Fatal(err)
	}
	another := h.keeper(filepath.Join(t.TempDir(), "another"), 0)
	archive.PassAndPause(t.Context(), another.Archiver)
	if len(another.alarms) != 1 || !strings.Contains(another.alarms[0], "the archive has no segment with row 65536, which was archived before; name the archive that has the segment") {
		t.Errorf("at first: %q", another.alarms)
	}
	removeFile(t, filepath.Join(dir, name(0, ".json")))
	archive.PassAndPause(t.Context(), k.Archiver)
	if len(k.alarms) != 0 {
		t.Errorf("at once: %q", k.alarms)
	}
	h.at = h.at.Add(time.Hour)
	archive.PassAndPause(t.Context(), k.Archiver)
	if len(k.alarms) != 1 || !strings.Contains(k.alarms[0], "no segment with row 65536") {
		t.Errorf("an hour later: %q", k.alarms)
	}
	for _, tt := range []struct { // in this order, because the last archived row cannot decrease
		archived int64
		want     string
	}{
		{2 * archive.Rows, "no segment with row 131072"},
		{3*archive.Rows + 1, "but no segment ends with it"},
	} {
		if err := h.Archived(t.Context(), tt.archived); err != nil {
			t.Fatal(err)
		}
		k := h.keeper(dir, 0)
		if _, err := archive.Pass(t.Context(), k.Archiver); !errors.Is(err, archive.ErrDamaged) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%d: %v", tt.archived, err)
		}
	}
}

// TestFailuresAreSaidOnce checks that the first failure and the recovery are each logged once.
func TestFailuresAreSaidOnce(t *testing.T) {
	h := newHouse(t, sqlstore.Config{Dir: t.TempDir()})
	h.write(t, archive.Rows)
	dir := filepath.Join(t.TempDir(), "archive")
	k := h.keeper(dir, 0)
	said := &recorder{}
	k.Logger = slog.New(said)
	write(t, dir, nil) // a file in place of the directory
	for range 3 {
		if pause := archive.PassAndPause(t.Context(), k.Archiver); pause < archive.Every {
			t.Errorf("the next try is in %s", pause)
		}
	}
	removeFile(t, dir)
	archive.PassAndPause(t.Context(), k.Archiver)
	archive.PassAndPause(t.Context(), k.Archiver)
	said.mu.Lock()
	defer said.mu.Unlock()
	if got := strings.Join(said.lines, ", "); got != "audit rows cannot be archived; they stay in the database, audit rows archived, the audit archive works again" {
		t.Error(got)
	}
}

type recorder struct {
	slog.Handler
	mu    sync.Mutex
	lines []string
}

func (r *recorder) Enabled(context.Context, slog.Level) bool { return true }

func (r *recorder) Handle(_ context.Context, line slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line.Message)
	return nil
}
