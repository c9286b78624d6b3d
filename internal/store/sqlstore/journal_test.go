package sqlstore_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/journal"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

var recovered = flag.Int("recovered", 20_000, "rows that TestRecovery recovers")

func usedRow() keyserver.AuditEntry {
	e := row("hmacData", "", 1)
	e.UsedKey = id(1)
	return e
}

// deaths are the actions of a process before it kills itself. The keys are the values of
// the environment variable victimDeath.
var deaths = map[string]func(dir string) error{
	// Writes 30 rows to the tables and 20 only to the journal.
	"rows": func(dir string) error {
		s, w, err := begin(sqlstore.Config{Dir: dir})
		if err != nil {
			return err
		}
		if err := writeUsed(w, 30); err != nil {
			return err
		}
		if _, err := s.AuditSnapshot(context.Background()); err != nil {
			return err
		}
		return writeUsed(w, 20)
	},
	"full": fillDisk,
	// Writes all rows only to the journal, which is large enough.
	"many": func(dir string) error {
		s, w, err := begin(sqlstore.Config{Dir: dir}.WithJournal(journal.Options{SegmentBytes: int64(recoveredRows()) * 512}))
		if err != nil {
			return err
		}
		held, release := make(chan struct{}), make(chan struct{})
		go func() {
			_ = s.Update(context.Background(), func(*sqlstore.Tx) error { close(held); <-release; return nil })
		}()
		<-held
		many := make([]keyserver.AuditEntry, 500)
		for n := range recoveredRows() / len(many) {
			for i := range many {
				many[i] = usedRow()
				many[i].RequestID = fmt.Sprint(n, i)
			}
			if err := w.WriteAll(context.Background(), many); err != nil {
				return err
			}
		}
		return nil
	},
}

const (
	victimDeath = "SQLSTORE_TEST_DEATH"
	victimRows  = "SQLSTORE_TEST_ROWS"
)

func recoveredRows() int {
	n := 0
	_, _ = fmt.Sscan(os.Getenv(victimRows), &n)
	return n
}

func begin(cfg sqlstore.Config) (*sqlstore.Store, *audit.Writer, error) {
	s, err := sqlstore.Open(context.Background(), cfg)
	if err != nil {
		return nil, nil, err
	}
	w, err := audit.NewWriter(context.Background(), s, audit.Options{})
	return s, w, err
}

func writeUsed(w *audit.Writer, n int) error {
	for range n {
		if err := w.Write(context.Background(), usedRow()); err != nil {
			return err
		}
	}
	return nil
}

// dies starts a process that runs one of deaths and then kills itself. It returns the
// directory of the database.
func dies(t *testing.T, death string) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), victimDir+"="+dir, victimDeath+"="+death, fmt.Sprintf("%s=%d", victimRows, *recovered))
	out, err := cmd.CombinedOutput()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

func die(death, dir string) error {
	if err := deaths[death](dir); err != nil {
		return err
	}
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

// holds checks that the audit log is intact, and that each use was counted once.
func holds(t *testing.T, cfg sqlstore.Config, rows int64) {
	t.Helper()
	s, err := sqlstore.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.UseRowKey(rowKey(t))
	defer closeStore(t, s)
	if report := verify(t, s); !report.Intact() || report.Rows != rows {
		t.Errorf("of %d rows: %+v", rows, report)
	}
	uses, err := s.KeyUses(t.Context(), ids(1))
	if err != nil || uses[id(1)].Uses != rows {
		t.Errorf("of %d uses: %+v, %v", rows, uses, err)
	}
}

func TestAStartTakesOverWhatAKilledProcessLeft(t *testing.T) {
	dir := dies(t, "rows")
	kept := t.TempDir()
	if err := os.CopyFS(kept, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	cfg := sqlstore.Config{Dir: dir}
	if report := readOnly(t, database{config: cfg}); !report.Intact() || report.Rows != 50 {
		t.Errorf("the rows of the journal are of the trail, also before a start: %+v", report)
	}
	for range 2 {
		holds(t, cfg, 50)
	}
	// A process can also end after all rows are in the tables, but before it deletes the journal.
	if err := copyFile(filepath.Join(kept, journal.File), filepath.Join(dir, journal.File)); err != nil {
		t.Fatal(err)
	}
	holds(t, cfg, 50)
	if _, err := os.Stat(filepath.Join(dir, journal.File)); !os.IsNotExist(err) {
		t.Errorf("the journal is still there: %v", err)
	}
}

func copyFile(from, to string) error {
	raw, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, raw, 0o600)
}

func TestAJournalThatDoesNotBelongIsRefused(t *testing.T) {
	cases := map[string]struct {
		reason string
		spoil  func(t *testing.T, dir string) error
		says   string
		left   int64 // rows of the tables
	}{
		"Missing": {"copied without it", func(_ *testing.T, dir string) error { return os.Remove(filepath.Join(dir, journal.File)) }, "is missing", 30},
		"Flipped": {"one bit of the last row", func(_ *testing.T, dir string) error {
			raw, err := os.ReadFile(filepath.Join(dir, journal.File))
			if err != nil {
				return err
			}
			raw[strings.LastIndex(string(raw), "192.0.2.1")] ^= 1
			return os.WriteFile(filepath.Join(dir, journal.File), raw, 0o600)
		}, "is damaged at byte ", 30},
		"Another": {"of another database", func(t *testing.T, dir string) error {
			return copyFile(filepath.Join(dies(t, "rows"), journal.File), filepath.Join(dir, journal.File))
		}, "belongs to another database", 30},
		"Restored": {"a backup of the database beside the journal of later", func(t *testing.T, dir string) error {
			empty := t.TempDir()
			s, err := sqlstore.Open(t.Context(), sqlstore.Config{Dir: empty})
			if err != nil {
				return err
			}
			return errors.Join(s.Close(), os.Remove(filepath.Join(dir, "keyserver.db-wal")), os.Remove(filepath.Join(dir, "keyserver.db-shm")),
				copyFile(filepath.Join(empty, "keyserver.db"), filepath.Join(dir, "keyserver.db")))
		}, "has rows that do not belong to the database there", 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := dies(t, "rows")
			if err := tc.spoil(t, dir); err != nil {
				t.Fatal(err)
			}
			cfg := sqlstore.Config{Dir: dir}
			if err := verifyOnly(t, cfg); !errors.Is(err, sqlstore.ErrUnusable) || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), "keyserver.db-wal") {
				t.Errorf("%s, where it is only read: got %v", tc.reason, err)
			}
			_, err := sqlstore.Open(t.Context(), cfg)
			if !errors.Is(err, sqlstore.ErrUnusable) || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), "discard-journal") || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%s: got %v", tc.reason, err)
			}
			last, discarded, err := sqlstore.DiscardJournal(t.Context(), cfg)
			if err != nil || !discarded || last != tc.left {
				t.Fatalf("given up: row %d, %v, %v", last, discarded, err)
			}
			s, err := sqlstore.Open(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			s.UseRowKey(rowKey(t))
			defer closeStore(t, s)
			page, err := s.AuditRows(t.Context(), keyserver.AuditFilter{After: tc.left})
			if err != nil || len(page.Entries) != 1 || page.Entries[0].Operation != keyserver.AuditDiscarded || !verify(t, s).Intact() {
				t.Errorf("the trail says so: %+v, %v", page, err)
			}
		})
	}
}

func verifyOnly(t *testing.T, cfg sqlstore.Config) error {
	t.Helper()
	s, err := sqlstore.OpenReadOnly(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = audit.Verify(t.Context(), s)
	return err
}

// TestWhatServeRefusesIsNotIntact checks a database without a journal, next to which there
// is the journal of another database.
func TestWhatServeRefusesIsNotIntact(t *testing.T) {
	cfg := sqlstore.Config{Dir: t.TempDir()}
	s, w, err := begin(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(writeUsed(w, 5), w.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if err := verifyOnly(t, cfg); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(cfg.Dir, journal.File)
	if err := copyFile(filepath.Join(dies(t, "rows"), journal.File), name); err != nil {
		t.Fatal(err)
	}
	if err := verifyOnly(t, cfg); !errors.Is(err, sqlstore.ErrUnusable) || !strings.Contains(err.Error(), "has rows that do not belong to the database there") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(name); err != nil {
		t.Errorf("reading removed it: %v", err)
	}
}

func TestAJournalThatCanBeUsedIsNotGivenUp(t *testing.T) {
	dir := dies(t, "rows")
	last, discarded, err := sqlstore.DiscardJournal(t.Context(), sqlstore.Config{Dir: dir})
	if err != nil || discarded || last != 50 {
		t.Errorf("row %d, %v, %v", last, discarded, err)
	}
	holds(t, sqlstore.Config{Dir: dir}, 50)
}

// TestAJournalThatCannotBeWritten checks that nothing is acknowledged while writes fail,
// and that the journal recovers by itself.
func TestAJournalThatCannotBeWritten(t *testing.T) {
	var failing atomic.Bool
	cfg := sqlstore.Config{Dir: t.TempDir()}.WithJournal(journal.Options{Write: func(f *os.File, b []byte, at int64) error {
		if failing.Load() {
			return unix.EIO
		}
		_, err := f.WriteAt(b, at)
		return err
	}})
	s, w, err := begin(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for n := range int64(3) {
		if err := w.Write(t.Context(), usedRow()); err != nil {
			t.Fatal(err)
		}
		failing.Store(true)
		if err := w.Write(t.Context(), usedRow()); fault.CodeOf(err) != fault.AuditUnavailable {
			t.Errorf("while it fails: %v", err)
		}
		failing.Store(false)
		uses, err := s.KeyUses(t.Context(), ids(1))
		if err != nil || uses[id(1)].Uses != n+1 {
			t.Errorf("%+v, %v", uses, err)
		}
	}
	if err := errors.Join(w.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	holds(t, cfg, 3)
}

// TestMoreThanTheJournalHolds checks that a full journal waits for the tables, and that rows
// that are too large for the journal are written to the tables directly.
func TestMoreThanTheJournalHolds(t *testing.T) {
	cfg := sqlstore.Config{Dir: t.TempDir()}.WithJournal(journal.Options{SegmentBytes: 8 << 10})
	s, w, err := begin(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeUsed(w, 100); err != nil {
		t.Fatal(err)
	}
	large := []keyserver.AuditEntry{usedRow(), usedRow(), usedRow()}
	for i := range large {
		large[i].Object = strings.Repeat("x", 4096)
	}
	if err := w.WriteAll(t.Context(), large); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(writeUsed(w, 7), w.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	holds(t, cfg, 110)
}

// fillDisk writes rows until the database files cannot grow, and continues when they can. It
// runs in a separate process.
func fillDisk(dir string) error {
	s, w, err := begin(sqlstore.Config{Dir: dir}.WithJournal(journal.Options{SegmentBytes: 64 << 10}))
	if err != nil {
		return err
	}
	// A limit on the size of files has the effect of a full disk. It does not affect the journal,
	// whose space is allocated.
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 20, Max: was.Max}); err != nil {
		return err
	}
	rows := 0
	for err == nil && rows < 100_000 {
		if err = w.Write(context.Background(), usedRow()); err == nil {
			rows++
		}
	}
	if fault.CodeOf(err) != fault.AuditUnavailable {
		return fmt.Errorf("after %d rows: %w", rows, err)
	}
	if again := w.Write(context.Background(), usedRow()); fault.CodeOf(again) != fault.AuditUnavailable {
		return fmt.Errorf("still full: %w", again)
	}
	if fault.CodeOf(s.Writable(context.Background())) != fault.StoreUnavailable {
		return errors.New("a database that cannot be written says that it takes writes")
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		return err
	}
	for range 300 {
		if err = w.Write(context.Background(), usedRow()); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("there is room again: %w", err)
	}
	if err := s.Writable(context.Background()); err != nil {
		return fmt.Errorf("it takes writes again: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, "rows"), fmt.Append(nil, rows+1), 0o600)
}

func TestAFullDisk(t *testing.T) {
	dir := dies(t, "full")
	raw, err := os.ReadFile(filepath.Join(dir, "rows"))
	if err != nil {
		t.Fatal(err)
	}
	var rows int64
	if _, err := fmt.Sscan(string(raw), &rows); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d rows were acknowledged", rows)
	holds(t, sqlstore.Config{Dir: dir}, rows)
}

// TestRecovery measures the recovery of the rows in a journal: with -recovered 1000000, of
// a million rows.
func TestRecovery(t *testing.T) {
	dir := dies(t, "many")
	start, cpu := time.Now(), cpuTime(t)
	s, err := sqlstore.Open(t.Context(), sqlstore.Config{Dir: dir})
	took := time.Since(start)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d rows in %s, of processor time %s", *recovered, took, cpuTime(t)-cpu)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	holds(t, sqlstore.Config{Dir: dir}, int64(*recovered))
}

func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}
