// Package trail measures a key server with a long audit log.
package trail

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/archive"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/program"
)

// variable is the number of rows of the log. 50,000,000 need about 40 GB and hours.
const variable = "BENCH_TRAIL_ROWS"

var built program.Program

func TestMain(m *testing.M) { os.Exit(program.Main(m, &built, false)) }

func TestTrail(t *testing.T) {
	rows, err := strconv.ParseInt(os.Getenv(variable), 10, 64)
	if err != nil {
		t.Skipf("a measurement: give the number of rows as %s", variable)
	}
	t.Run("sqlite", func(t *testing.T) {
		dir := t.TempDir()
		measure(t, rows, sqlstore.Config{Dir: dir}, dir)
	})
	t.Run("postgres", func(t *testing.T) {
		url := pgtest.DurableDatabase(t)
		measure(t, rows, sqlstore.Config{URL: url}, t.TempDir(), "--database-url", url)
	})
}

// bench is one database with its program.
type bench struct {
	*testing.T
	cfg  sqlstore.Config
	dir  string
	args []string
}

// sealed is the number of segments that the test archives: enough for one partition of PostgreSQL.
const sealed = 1<<20/archive.Rows + 2

func measure(t *testing.T, rows int64, cfg sqlstore.Config, dir string, args ...string) {
	b := &bench{t, cfg, dir, args}
	b.serve("first start", nil)
	b.say("load", func() string { return b.load(rows) })
	b.Logf("%s", b.size(rows))
	b.after(rows)
}

// after runs the measurements after the rows are loaded.
func (b *bench) after(rows int64) {
	b.serve("start", nil)
	b.serve("pages", b.pages)
	b.command("verify", append([]string{"audit", "verify"}, b.where()...)...)
	if rows <= sealed*archive.Rows {
		b.Fatalf("%d rows are too few to archive %d segments", rows, sealed)
	}
	url := "file://" + filepath.Join(b.dir, "archive")
	b.serve(fmt.Sprintf("archiving %d segments", sealed), b.until(func(e audit.Extent) bool {
		return e.Archived >= sealed*archive.Rows
	}), "--audit-archive", url+"?create_dir=true")
	b.command("verify of the archive", "audit", "verify", "--archive", url, "--key", b.key())
	// The server removes no row before all rows are archived. So the database and the archive claim that all are.
	last := rows / archive.Rows * archive.Rows
	b.writeFakeManifest(last - archive.Rows + 1)
	b.exec(fmt.Sprintf(`UPDATE audit_extent SET archived = %d`, last))
	b.serve("nothing is removed", func(s *program.Server) {
		end := time.Now().Add(10 * time.Second)
		b.measureWaits(s, func() bool { return time.Now().After(end) })
	})
	until := int64(archive.Rows)
	if b.cfg.URL != "" {
		until = 1 << 20
	}
	b.serve(fmt.Sprintf("removing %d rows", until), func(s *program.Server) {
		b.measureWaits(s, func() bool { return b.oldest() > until })
	}, "--audit-archive", url, "--audit-retention", "1h")
}

// writeFakeManifest writes a manifest for a segment whose rows the archive does not have.
func (b *bench) writeFakeManifest(first int64) {
	b.Helper()
	name := audit.Segment(first)
	content, err := json.Marshal(archive.Manifest{
		First: first, Last: first + archive.Rows - 1, Object: name + ".rows.zst", Checkpoint: name + ".checkpoint",
	})
	if err != nil {
		b.Fatal(err)
	}
	file := filepath.Join(b.dir, "archive", filepath.FromSlash(name)+".json")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		b.Fatal(err)
	}
}

// measureWaits runs requests on a server until over returns true. It reports the longest waits for an audit row and for a
// transaction.
func (b *bench) measureWaits(s *program.Server, over func() bool) {
	b.Helper()
	c := s.Admin(b.T, program.NoRetries)
	key, err := c.MintKey(b.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	if err != nil {
		b.Fatal(err)
	}
	var ended atomic.Bool
	var all sync.WaitGroup
	for what, request := range map[string]func() error{
		"an HMAC": func() error {
			_, err := c.HMAC(b.Context(), key.TTag, strings.NewReader("message"))
			return err
		},
		"making a key": func() error {
			_, err := c.MintKey(b.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
			return err
		},
	} {
		all.Go(func() {
			var took []time.Duration
			for !ended.Load() {
				began := time.Now()
				if err := request(); err != nil {
					b.Error(err)
					return
				}
				took = append(took, time.Since(began))
				time.Sleep(2 * time.Millisecond)
			}
			slices.Sort(took)
			n := len(took)
			b.Logf("%s: %d times, median %s, of 100 the slowest %s, at most %s", what, n, took[n/2], took[n*99/100], took[n-1])
		})
	}
	for !over() {
		if fails(s) {
			b.Error(s.Log())
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	ended.Store(true)
	all.Wait()
}

// exec changes a database that no server uses.
func (b *bench) exec(text string) {
	b.Helper()
	db := b.open()
	defer db.Close()
	if _, err := db.ExecContext(b.Context(), text); err != nil {
		b.Fatal(err)
	}
}

// oldest returns the number of the first row in the table.
func (b *bench) oldest() (seq int64) {
	b.Helper()
	db := b.open()
	defer db.Close()
	if err := db.QueryRowContext(b.Context(), `SELECT min(seq) FROM audit`).Scan(&seq); err != nil {
		b.Fatal(err)
	}
	return seq
}

func (b *bench) open() *sql.DB {
	b.Helper()
	driver, source := "pgx", b.cfg.URL
	if source == "" {
		driver, source = "sqlite", "file:"+filepath.Join(b.dir, sqlite.DatabaseFile)+"?_busy_timeout=60000"
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		b.Fatal(err)
	}
	return db
}

// size returns the average size of a row.
func (b *bench) size(rows int64) string {
	b.Helper()
	tables := `SELECT page_count * page_size FROM pragma_page_count, pragma_page_size`
	if b.cfg.URL != "" {
		tables = `SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relname LIKE 'audit%' AND relkind = 'r'`
	}
	db := b.open()
	defer db.Close()
	var bytes int64
	if err := db.QueryRowContext(b.Context(), tables).Scan(&bytes); err != nil {
		b.Fatal(err)
	}
	return fmt.Sprintf("%d MB, %d bytes a row", bytes>>20, bytes/rows)
}

func (b *bench) where() []string {
	if b.cfg.URL != "" {
		return []string{"--database-url", b.cfg.URL}
	}
	return []string{"--data-dir", b.dir}
}

func (b *bench) say(what string, do func() string) {
	b.Helper()
	began := time.Now()
	more := do()
	b.Logf("%s: %s %s", what, time.Since(began).Round(time.Millisecond), more)
}

// serve starts the program, calls do, and stops the program.
func (b *bench) serve(what string, do func(*program.Server), args ...string) {
	b.Helper()
	b.say(what, func() string {
		began := time.Now()
		s, err := built.Serve(b.dir, append(slices.Clone(b.args), args...)...)
		if err != nil {
			b.Fatal(err)
		}
		ready, at := time.Since(began), peak(s.PID())
		defer func() {
			if err := s.Stop(); err != nil {
				b.Error(err)
			}
		}()
		if do != nil {
			do(s)
		}
		return fmt.Sprintf("(ready after %s with %s, in the end %s)", ready.Round(time.Millisecond), at, peak(s.PID()))
	})
}

// until returns a function that polls the database while the program runs, until is returns true.
func (b *bench) until(is func(audit.Extent) bool) func(*program.Server) {
	return func(s *program.Server) {
		b.Helper()
		store, err := sqlstore.OpenReadOnly(b.Context(), b.cfg)
		if err != nil {
			b.Fatal(err)
		}
		defer store.Close()
		for {
			if e, err := store.AuditExtent(b.Context()); err == nil && is(e) {
				return
			}
			if fails(s) {
				b.Fatal(s.Log())
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func fails(s *program.Server) bool { return strings.Contains(s.Log(), `"level":"ERROR"`) }

// peak returns the peak memory of a process.
func peak(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return err.Error()
	}
	return regexp.MustCompile(`VmHWM:.*`).FindString(string(text))
}

// pages reads pages of the audit log ten times each, as an auditor does. If a page is short, it also reads the next
// ones.
func (b *bench) pages(s *program.Server) {
	b.Helper()
	c := s.Admin(b.T, program.NoRetries)
	desc, failed := "desc", string(keyserver.Failed)
	session, none := schema.HexID(rareSession), schema.HexID(values.IDFromUint64(1))
	for _, q := range []struct {
		what  string
		query schema.AuditQuery
	}{
		{"first", schema.AuditQuery{}},
		{"last", schema.AuditQuery{Cursor: b.end() - 100}},
		{"newest first", schema.AuditQuery{Order: &desc}},
		{"address", schema.AuditQuery{Address: rareAddress}},
		{"address, newest first", schema.AuditQuery{Address: rareAddress, Order: &desc}},
		{"session", schema.AuditQuery{Session: &session}},
		{"object", schema.AuditQuery{Object: rareObject}},
		{"outcome", schema.AuditQuery{Outcome: &failed}},
		{"nothing", schema.AuditQuery{Session: &none}},
		{"nothing, newest first", schema.AuditQuery{Session: &none, Order: &desc}},
	} {
		var took []time.Duration
		var rows, pages int
		for range 10 {
			began, query := time.Now(), q.query
			rows, pages = 0, 0
			for {
				page, err := c.ListAuditEntries(b.Context(), query)
				if err != nil {
					b.Fatal(err)
				}
				rows, pages = rows+len(page.Entries), pages+1
				if rows >= 100 || page.Next == nil {
					break
				}
				query.Cursor = *page.Next
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		b.Logf("page, %s: %d rows in %d pages, median %s, at most %s", q.what, rows, pages, took[5].Round(10*time.Microsecond), took[9].Round(10*time.Microsecond))
	}
}

// end returns the last row.
func (b *bench) end() (seq int64) {
	b.Helper()
	db := b.open()
	defer db.Close()
	if err := db.QueryRowContext(b.Context(), `SELECT max(seq) FROM audit`).Scan(&seq); err != nil {
		b.Fatal(err)
	}
	return seq
}

// command runs a command of the program to its end.
func (b *bench) command(what string, args ...string) {
	b.Helper()
	b.say(what, func() string {
		cmd := exec.Command(built.Path, args...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			b.Fatalf("%s: %v\n%s", what, err, out)
		}
		usage, _ := cmd.ProcessState.SysUsage().(*syscall.Rusage) // its type on Linux
		first, _, _ := strings.Cut(string(out), "\n")
		return fmt.Sprintf("(%d MB at most, %s of CPU): %s", usage.Maxrss>>10, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime(), first)
	})
}

// key returns the verification key of the audit log from its server.
func (b *bench) key() string {
	b.Helper()
	store, err := sqlstore.OpenReadOnly(b.Context(), b.cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	return b.signer(store).Key
}

func (b *bench) signer(store *sqlstore.Store) *tree.Signer {
	b.Helper()
	ring := b.ring(store)
	store.UseRowKey(ring.RowKey())
	signer, err := bootstrap.AuditSigner(b.Context(), bootstrap.Config{Store: store, Keyring: ring})
	if err != nil {
		b.Fatal(err)
	}
	return signer
}

// ring opens the keyring of the database.
func (b *bench) ring(store *sqlstore.Store) *keyring.Keyring {
	b.Helper()
	url, err := keyring.EnsureFileKey(b.dir)
	if err != nil {
		b.Fatal(err)
	}
	keeper, err := keyring.Open(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	defer keeper.Close()
	ring, err := keyring.Existing(b.Context(), keeper, store.Setting)
	if err != nil {
		b.Fatal(err)
	}
	return ring
}
