package tree_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest/migrated"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// trail is an audit log with 600 rows in a real database. Its checkpoints with 300, 500 and 600 rows are saved.
type trail struct {
	*testing.T
	config         sqlstore.Config
	driver, source string
	signer         *tree.Signer
	noted          map[int64]audit.TreeHead
}

func newTrail(t *testing.T, config sqlstore.Config, driver, source string) *trail {
	w := &trail{T: t, config: config, driver: driver, source: source, signer: newSigner(t), noted: map[int64]audit.TreeHead{}}
	store := w.open()
	defer w.shut(store)
	for _, n := range []int{300, 200, 100} {
		writer, err := audit.NewWriter(t.Context(), store, audit.Options{})
		if err != nil {
			t.Fatal(err)
		}
		rows := make([]keyserver.AuditEntry, n)
		for i := range rows {
			rows[i] = keyserver.AuditEntry{Operation: "hmacData", Outcome: keyserver.Allowed, Object: fmt.Sprint(i), Address: "192.0.2.1"}
		}
		if err := writer.WriteAll(t.Context(), rows); err != nil {
			t.Fatal(err)
		}
		if err := writer.Close(); err != nil {
			t.Fatal(err)
		}
		w.released()
		head := w.grow(store, w.signer)
		w.noted[head.Size] = head
	}
	for _, table := range tables {
		w.sql(fmt.Sprintf(`CREATE TABLE kept_%s AS SELECT * FROM %s`, table, table)) //nolint:unqueryvet // a copy of all of it
	}
	return w
}

var tables = []string{"audit", "audit_chains", "audit_tiles", "audit_tree", "sequences"}

func (w *trail) restore() {
	for _, table := range tables {
		w.sql(`DELETE FROM `+table, fmt.Sprintf(`INSERT INTO %s SELECT * FROM kept_%s`, table, table)) //nolint:unqueryvet // a copy of all of it
	}
}

func newSigner(t *testing.T) *tree.Signer {
	t.Helper()
	pair, err := tree.NewKey(rand.Reader, tree.Origin("keys", 7))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := tree.ReadKey(pair)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

func (w *trail) open() *sqlstore.Store {
	w.Helper()
	store, err := sqlstore.Open(w.Context(), w.config)
	if err != nil {
		w.Fatal(err)
	}
	return store
}

func (w *trail) shut(c io.Closer) {
	w.Helper()
	if err := c.Close(); err != nil {
		w.Error(err)
	}
}

// released waits until PostgreSQL has released the lock of the chain. Otherwise, the next writer would begin another
// chain.
func (w *trail) released() {
	w.Helper()
	if w.driver != "pgx" {
		return
	}
	w.with(func(db *sql.DB) error {
		var err error
		rig.Soon(w, "the lock of the chain is released", func() (released bool) {
			err = db.QueryRowContext(w.Context(), `SELECT NOT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
				WHERE d.datname = current_database() AND l.locktype = 'advisory')`).Scan(&released)
			return released || err != nil
		})
		return err
	})
}

// grow adds all rows to the tree, like a process that stops.
func (w *trail) grow(store *sqlstore.Store, signer *tree.Signer) audit.TreeHead {
	w.Helper()
	begin, err := tree.Begin(signer, time.Now())
	if err != nil {
		w.Fatal(err)
	}
	if _, err := store.GrowAuditTree(w.Context(), 0, nil, begin, nil); err != nil { // does nothing if the tree is not empty
		w.Fatal(err)
	}
	t := tree.New(tree.Config{Store: store, Signer: signer, Recent: tree.NewRecent(), Clock: time.Now, Logger: slog.New(slog.DiscardHandler), Alarm: func(p string) { w.Error(p) }})
	ended, cancel := context.WithCancel(w.Context())
	cancel()
	t.Run(ended)
	head, err := store.AuditTree(w.Context())
	if err != nil || t.Failing() != nil {
		w.Fatal(err, t.Failing())
	}
	return head
}

func (w *trail) sql(statements ...string) {
	w.with(func(db *sql.DB) error {
		for _, s := range statements {
			if _, err := db.ExecContext(w.Context(), s); err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
		}
		return nil
	})
}

func (w *trail) with(do func(*sql.DB) error) {
	w.Helper()
	db, err := sql.Open(w.driver, w.source)
	if err != nil {
		w.Fatal(err)
	}
	defer w.shut(db)
	if err := do(db); err != nil {
		w.Fatal(err)
	}
}

// rewrite changes a row and computes all later hashes of its chain again, like an attacker who can write to the
// database and knows the encoding.
func (w *trail) rewrite(seq int64) {
	w.Helper()
	store := w.open()
	defer w.shut(store)
	rows, err := store.AuditRange(w.Context(), 0, 1000, 1000)
	if err != nil {
		w.Fatal(err)
	}
	w.with(func(db *sql.DB) error {
		var previous [32]byte
		for i := range rows {
			r := &rows[i]
			if r.Seq == seq {
				r.Object = "another"
			}
			r.Previous = previous
			r.Hash, _ = audit.Sum(nil, r)
			previous = r.Hash
			if r.Seq < seq {
				continue
			}
			if _, err := db.ExecContext(w.Context(), `UPDATE audit SET object = $1, previous = $2, hash = $3 WHERE seq = $4`, r.Object, r.Previous[:], r.Hash[:], r.Seq); err != nil {
				return err
			}
		}
		_, err := db.ExecContext(w.Context(), `UPDATE audit_chains SET head = $1`, previous[:])
		return err
	})
}

// resign deletes the tree, and builds and signs it again from the stored rows.
func (w *trail) resign(signer *tree.Signer) {
	w.Helper()
	w.sql(`DELETE FROM audit_tree`, `DELETE FROM audit_tiles`)
	store := w.open()
	defer w.shut(store)
	w.grow(store, signer)
}

// cut removes the rows after row 500, and resets the tree to the checkpoint of 500 rows.
func (w *trail) cut() {
	w.Helper()
	const last = 500
	head := w.noted[last]
	w.sql(`DELETE FROM audit WHERE seq > 500`, `UPDATE sequences SET value = 500 WHERE name = 'audit'`,
		`UPDATE audit_chains SET position = 500, head = (SELECT hash FROM audit WHERE seq = 500)`)
	w.with(func(db *sql.DB) error {
		if _, err := db.ExecContext(w.Context(), `UPDATE audit_tree SET size = $1, root = $2, checkpoint = $3`, head.Size, head.Root[:], head.Checkpoint); err != nil {
			return err
		}
		for _, level := range []string{`level = 0 AND place = 2`, `level = 0 AND place > 1`} {
			if _, err := db.ExecContext(w.Context(), `DELETE FROM audit_tiles WHERE `+level); err != nil {
				return err
			}
		}
		var hashes []byte
		if err := db.QueryRowContext(w.Context(), `SELECT hashes FROM audit_tiles WHERE level = 0 AND place = 1`).Scan(&hashes); err != nil {
			return err
		}
		_, err := db.ExecContext(w.Context(), `UPDATE audit_tiles SET hashes = $1 WHERE level = 0 AND place = 1`, hashes[:(last-256)*32])
		if err == nil {
			_, err = db.ExecContext(w.Context(), `UPDATE audit_tiles SET hashes = (SELECT hashes FROM audit_tiles WHERE level = 1) WHERE level = 1`)
		}
		return err
	})
}

// forge replaces the newest checkpoint with a checkpoint of another size.
func (w *trail) forge(size int64) {
	w.Helper()
	root := w.noted[600].Root
	text := fmt.Sprintf("%s\n%d\n%s\n", tree.Origin("keys", 7), size, base64.StdEncoding.EncodeToString(root[:]))
	checkpoint, err := note.Sign(&note.Note{Text: text}, newSigner(w.T).Signer)
	if err != nil {
		w.Fatal(err)
	}
	w.with(func(db *sql.DB) error {
		_, err := db.ExecContext(w.Context(), `UPDATE audit_tree SET size = $1, checkpoint = $2`, size, checkpoint)
		return err
	})
}

func (w *trail) flip(level, place int) {
	w.Helper()
	w.with(func(db *sql.DB) error {
		var hashes []byte
		if err := db.QueryRowContext(w.Context(), `SELECT hashes FROM audit_tiles WHERE level = $1 AND place = $2`, level, place).Scan(&hashes); err != nil {
			return err
		}
		hashes[32*10%len(hashes)] ^= 1
		_, err := db.ExecContext(w.Context(), `UPDATE audit_tiles SET hashes = $1 WHERE level = $2 AND place = $3`, hashes, level, place)
		return err
	})
}

// verify returns the findings of "audit verify" in the tree, and the number of findings in the chains.
func (w *trail) verify(o tree.Options) (found []string, chains int) {
	w.Helper()
	store, err := sqlstore.OpenReadOnly(w.Context(), w.config)
	if err != nil {
		w.Fatal(err)
	}
	defer w.shut(store)
	v, err := tree.NewVerifier(w.Context(), store, o)
	if err != nil {
		w.Fatal(err)
	}
	report, err := audit.Verify(w.Context(), v.Tee(store))
	if err != nil {
		w.Fatal(err)
	}
	in, err := v.End(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range in.Findings {
		found = append(found, fmt.Sprintf("seq %d: %s", f.Seq, f.Problem))
	}
	if len(found) != in.Total && len(found) != 100 {
		w.Errorf("%d of %d findings are there", len(found), in.Total)
	}
	return found, report.Total
}

// TestEveryTamperingIsNamed verifies each change twice: only with the key, and only with saved checkpoints. "intact"
// marks a change that one of the two ways cannot detect.
func TestEveryTamperingIsNamed(t *testing.T) {
	const intact = "intact"
	const copied = `time, operation, outcome, reason, system_id, principal_id, object, kind, request_id, filename, chain, position, hash, previous, actor_system, actor_id,
		address, session_id, acting_for, times, approval_id`
	cases := map[string]struct {
		tamper      func(w *trail)
		key, noted  string // text of the first finding
		chainsAgree bool   // the chains alone do not detect the change
	}{
		"nothing": {func(*trail) {}, intact, intact, true},
		"a row changed": {func(w *trail) { w.sql(`UPDATE audit SET object = 'x' WHERE seq = 41`) },
			"seq 41: changed: the row does not match", "seq 0: changed: the rows 1 to 300 do not match the checkpoint in 300", false},
		"a row changed, and its chain": {func(w *trail) { w.rewrite(41) },
			"seq 41: changed: the row does not match", "seq 0: changed: the rows 1 to 300", true},
		"a row dropped": {func(w *trail) { w.sql(`DELETE FROM audit WHERE seq = 41`) },
			"seq 41: missing: the tree has the row", "seq 41: missing", false},
		"rows dropped": {func(w *trail) { w.sql(`DELETE FROM audit WHERE seq BETWEEN 41 AND 300`) },
			"seq 41: missing: the tree has the rows up to 300", "seq 41: missing", false},
		"rows swapped": {func(w *trail) {
			w.sql(`UPDATE audit SET seq = 1000 WHERE seq = 41`, `UPDATE audit SET seq = 41 WHERE seq = 42`, `UPDATE audit SET seq = 42 WHERE seq = 1000`)
		}, "seq 41: changed", "seq 0: changed: the rows 1 to 300", false},
		"a row inserted, the others moved": {func(w *trail) {
			w.sql(`UPDATE audit SET seq = -seq WHERE seq > 40`, `UPDATE audit SET seq = 1 - seq WHERE seq < 0`,
				`INSERT INTO audit SELECT 41, `+copied+` FROM audit WHERE seq = 40`, `UPDATE sequences SET value = 601 WHERE name = 'audit'`)
		}, "seq 41: changed", "seq 0: changed: the rows 1 to 300", false},
		"the last rows, without the tree": {func(w *trail) {
			w.sql(`DELETE FROM audit WHERE seq > 500`, `UPDATE sequences SET value = 500 WHERE name = 'audit'`,
				`UPDATE audit_chains SET position = 500, head = (SELECT hash FROM audit WHERE seq = 500)`)
		}, "seq 501: missing: the tree has the rows up to 600", "seq 501: missing", true},
		"the last rows, the tree too": {(*trail).cut, intact, "seq 501: removed: the checkpoint in 600 has 600 rows, but the tree has 500", true},
		"all rows and the tree": {func(w *trail) {
			w.sql(`DELETE FROM audit`, `DELETE FROM audit_chains`, `DELETE FROM audit_tree`, `DELETE FROM audit_tiles`, `UPDATE sequences SET value = 0 WHERE name = 'audit'`)
		}, "seq 0: missing: there is no checkpoint", "seq 1: removed: the checkpoint in 300 has 300 rows, but the tree has 0", true},
		"a row and its chain, and no tree any more": {func(w *trail) {
			w.rewrite(41)
			w.sql(`DELETE FROM audit_tree`, `DELETE FROM audit_tiles`)
		}, "seq 0: missing: there is no checkpoint", "seq 1: removed: the checkpoint in 300", true},
		"a checkpoint of a tree without end": {func(w *trail) { w.forge(1 << 50) },
			"seq 0: forged", "seq 513: changed: tile 2 of level 0 has 2816 of 8192 bytes", true},
		"a hash": {func(w *trail) { w.flip(0, 1) },
			"seq 267: changed: the tree has another hash for the row, but the checkpoint confirms the row", "seq 267: changed", true},
		"a hash above": {func(w *trail) { w.flip(1, 0) },
			"seq 1: changed: tile 0 of level 1 does not follow", "seq 1: changed: tile 0 of level 1", true},
		"a tile": {func(w *trail) { w.sql(`DELETE FROM audit_tiles WHERE level = 0 AND place = 1`) },
			"seq 257: changed: tile 1 of level 0 has 0 of 8192 bytes", "seq 257: changed: tile 1", true},
		"a row and its hash": {func(w *trail) { w.rewrite(41); w.flip(0, 0) },
			"seq 0: changed: neither the rows nor the hashes", "seq 0: changed: the rows 1 to 300", true},
		"the root": {func(w *trail) { w.sql(`UPDATE audit_tree SET size = 599`) },
			"seq 0: changed: the database says that the tree has 599 rows", "seq 0: changed: the database says", true},
		"no checkpoint": {func(w *trail) {
			w.with(func(db *sql.DB) error {
				_, err := db.Exec(`UPDATE audit_tree SET checkpoint = $1`, []byte("x"))
				return err
			})
		},
			"seq 0: changed: the newest checkpoint cannot be read", "seq 0: changed: the newest checkpoint", true},
		"another key": {func(w *trail) { w.resign(newSigner(w.T)) },
			"seq 0: forged: the checkpoint does not belong to keys/audit/7, or was not signed by its key", intact, true},
		"everything, by another key": {func(w *trail) { w.rewrite(41); w.resign(newSigner(w.T)) },
			"seq 0: forged", "seq 0: changed: the rows 1 to 300 do not match", true},
		"everything, by a key that was stolen": {func(w *trail) { w.rewrite(41); w.resign(w.signer) },
			intact, "seq 0: changed: the rows 1 to 300 do not match", true},
		"what came last, by a key that was stolen": {func(w *trail) { w.rewrite(541); w.resign(w.signer) },
			intact, "seq 0: changed: the rows 1 to 600 do not match the checkpoint in 600", true},
	}
	for name, make := range map[string]func(t *testing.T) *trail{
		"SQLite": func(t *testing.T) *trail {
			dir := t.TempDir()
			file := url.URL{Scheme: "file", OmitHost: true, Path: filepath.Join(dir, "keyserver.db"), RawQuery: "_busy_timeout=10000"}
			return newTrail(t, sqlstore.Config{Dir: dir}, "sqlite", file.String())
		},
		"PostgreSQL": func(t *testing.T) *trail {
			u := migrated.Database(t)
			return newTrail(t, sqlstore.Config{URL: u}, "pgx", u)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := make(t)
			noted := []tree.Noted{{Name: "300", Head: w.noted[300]}, {Name: "600", Head: w.noted[600]}}
			for name, c := range cases {
				c.tamper(w)
				for i, o := range []tree.Options{{Key: w.signer.Verifier}, {Noted: noted}} {
					by := []string{c.key, c.noted}[i]
					found, chains := w.verify(o)
					if (chains == 0) != c.chainsAgree {
						t.Errorf("%s: the chains have %d findings", name, chains)
					}
					switch {
					case by == intact && len(found) > 0, by != intact && (len(found) == 0 || !strings.HasPrefix(found[0], by)):
						t.Errorf("%s, key %v: want %q, got %q", name, o.Key != nil, by, found[:min(3, len(found))])
					}
				}
				w.restore()
			}
		})
	}
}

// TestRowsThatAreElsewhere checks that the hashes that stay in the database prove archived rows.
func TestRowsThatAreElsewhere(t *testing.T) {
	dir := t.TempDir()
	file := url.URL{Scheme: "file", OmitHost: true, Path: filepath.Join(dir, "keyserver.db"), RawQuery: "_busy_timeout=10000"}
	w := newTrail(t, sqlstore.Config{Dir: dir}, "sqlite", file.String())
	w.sql(`DELETE FROM audit WHERE seq <= 290`)
	o := tree.Options{Key: w.signer.Verifier, Noted: []tree.Noted{{Name: "300", Head: w.noted[300]}}, First: 291}
	if found, _ := w.verify(o); len(found) > 0 {
		t.Errorf("rows that were archived: %q", found)
	}
	o.First = 290
	if found, _ := w.verify(o); len(found) != 1 || !strings.HasPrefix(found[0], "seq 290: missing: the tree has the row") {
		t.Errorf("one row more is gone: %q", found)
	}
	o.First = 291
	w.flip(0, 0)
	if found, _ := w.verify(o); len(found) == 0 {
		t.Error("a hash of a row that was archived may be changed")
	}
}

// TestWhoSaysThatRowsWereRemoved checks that removed rows are explained only by a row of the key server itself, in the
// tree and about the segment before the first row.
func TestWhoSaysThatRowsWereRemoved(t *testing.T) {
	const first = 2*audit.SegmentRows + 1
	right := keyserver.AuditEntry{
		Operation: keyserver.AuditPruned, Outcome: keyserver.Allowed, Kind: keyserver.InternalSession, Object: "65537-131072",
	}
	for name, tc := range map[string]struct {
		change func(e *keyserver.AuditEntry)
		newer  bool
		pruned bool
	}{
		"so":                 {change: func(*keyserver.AuditEntry) {}, pruned: true},
		"not in the tree":    {change: func(*keyserver.AuditEntry) {}, newer: true},
		"the segment before": {change: func(e *keyserver.AuditEntry) { e.Object = "1-65536" }},
		"the segment after":  {change: func(e *keyserver.AuditEntry) { e.Object = "131073-196608" }},
		"another begin":      {change: func(e *keyserver.AuditEntry) { e.Object = "1-131072" }},
		"refused":            {change: func(e *keyserver.AuditEntry) { e.Outcome = keyserver.Refused }},
		"somebody":           {change: func(e *keyserver.AuditEntry) { e.Kind = "password" }},
		"something":          {change: func(e *keyserver.AuditEntry) { e.Operation = "listAudit" }},
	} {
		t.Run(name, func(t *testing.T) {
			w := &trail{T: t, config: sqlstore.Config{Dir: t.TempDir()}, signer: newSigner(t)}
			store := w.open()
			defer w.shut(store)
			writer, err := audit.NewWriter(t.Context(), store, audit.Options{})
			if err != nil {
				t.Fatal(err)
			}
			row := right
			tc.change(&row)
			if err := writer.Write(t.Context(), keyserver.AuditEntry{Operation: "hmacData", Outcome: keyserver.Allowed}); err != nil {
				t.Fatal(err)
			}
			if tc.newer {
				w.grow(store, w.signer)
			}
			if err := writer.Write(t.Context(), row); err != nil {
				t.Fatal(err)
			}
			if err := writer.Close(); err != nil {
				t.Fatal(err)
			}
			if !tc.newer {
				w.grow(store, w.signer)
			}
			v, err := tree.NewVerifier(t.Context(), store, tree.Options{Key: w.signer.Verifier, First: first})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := audit.Verify(t.Context(), v.Tee(store)); err != nil {
				t.Fatal(err)
			}
			if report, err := v.End(t.Context()); err != nil || report.Pruned != tc.pruned {
				t.Errorf("%+v, %v", report, err)
			}
		})
	}
}
