package sink

import (
	"bufio"
	"database/sql"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	_ "modernc.org/sqlite"

	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest/migrated"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/inbox"
)

// TestRowsThatDoNotAgreeStay checks that rows which were changed, removed or inserted without the tree are not sent,
// and that the log names the row.
func TestRowsThatDoNotAgreeStay(t *testing.T) {
	for name, c := range map[string]struct{ statement, says string }{
		"changed":             {`UPDATE audit SET object = 'another' WHERE seq = 5`, "1 to 20 are not those of the log"},
		"one removed":         {`DELETE FROM audit WHERE seq = 5`, "19 rows do not match"},
		"the last removed":    {`DELETE FROM audit WHERE seq = 20`, ""}, // earlier rows are sent
		"the tree was, too":   {`UPDATE audit_tiles SET hashes = zeroblob(640)`, ""},
		"the checkpoint was":  {`UPDATE audit_tree SET checkpoint = x'00'`, "checkpoint"},
		"the checkpoint lies": {`UPDATE audit_tree SET size = 21`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			w := newTrail(t, sqlstore.Config{Dir: dir}, newSigner(t))
			w.write(t, 20)
			db, err := sql.Open("sqlite", filepath.Join(dir, sqlite.DatabaseFile))
			rig.Must(t, err)
			defer db.Close()
			_, err = db.Exec(c.statement)
			rig.Must(t, err)
			r := New(w.config(t), Target{Name: "sink", scheme: "stdout"})
			r.batchLimit = 20
			rig.Must(t, r.claim(t.Context(), time.Now()))
			b, _, err := r.next(t.Context())
			switch {
			case name == "the last removed":
				if err != nil || b.Last != 19 {
					t.Fatalf("%+v, %v", b, err)
				}
				r.hold(19, true)
				if _, _, err = r.next(t.Context()); err == nil || !strings.Contains(err.Error(), "row 20 is missing") {
					t.Error(err)
				}
			case err == nil || !strings.Contains(err.Error(), c.says):
				t.Errorf("%v", err)
			}
		})
	}
}

// TestRowsThatAreNoLongerKept checks that a sink skips removed rows and logs this.
func TestRowsThatAreNoLongerKept(t *testing.T) {
	dir := t.TempDir()
	w := newTrail(t, sqlstore.Config{Dir: dir}, newSigner(t))
	w.write(t, 20)
	db, err := sql.Open("sqlite", filepath.Join(dir, sqlite.DatabaseFile))
	rig.Must(t, err)
	defer db.Close()
	r := New(w.config(t), Target{Name: "old", scheme: "stdout"})
	rig.Must(t, r.claim(t.Context(), time.Now()))
	_, err = db.Exec(`DELETE FROM audit WHERE seq <= 12; UPDATE audit_extent SET first = 13`)
	rig.Must(t, err)
	fresh := New(w.config(t), Target{Name: "new", scheme: "stdout"})
	rig.Must(t, fresh.claim(t.Context(), time.Now()))
	for _, one := range []*Runner{r, fresh} {
		b, _, err := one.next(t.Context())
		if err != nil || b.First != 13 || b.Last != 20 {
			t.Errorf("%s: %v", one.target.Name, err)
		}
	}
	if r.sent != 0 || fresh.sent != 12 || w.log.count("were removed before an audit sink had them") != 1 {
		t.Errorf("%d, %d: %s", r.sent, fresh.sent, w.log.String())
	}
}

// TestClaims checks that only one holder has a sink, that another holder cannot move or release it, and that a move
// must start at the current position.
func TestClaims(t *testing.T) {
	for name, database := range map[string]func(*testing.T) sqlstore.Config{
		"SQLite":     func(t *testing.T) sqlstore.Config { return sqlstore.Config{Dir: migrated.Dir(t)} },
		"PostgreSQL": func(t *testing.T) sqlstore.Config { return sqlstore.Config{URL: migrated.Database(t)} },
	} {
		t.Run(name, func(t *testing.T) {
			s := newTrail(t, database(t), newSigner(t)).store
			now := time.Now()
			claim := func(holder string, at time.Time) (int64, bool) {
				sent, held, err := s.ClaimAuditSink(t.Context(), "sink", []byte(holder), 8, at, time.Minute)
				rig.Must(t, err)
				return sent, held
			}
			move := func(holder string, from, to int64) bool {
				moved, err := s.MoveAuditSink(t.Context(), "sink", []byte(holder), from, to)
				rig.Must(t, err)
				return moved
			}
			if sent, held := claim("a", now); !held || sent != 7 {
				t.Errorf("a new one: %d, %v", sent, held)
			}
			if _, held := claim("b", now.Add(time.Second)); held {
				t.Error("two have it")
			}
			if move("b", 7, 9) || move("a", 8, 9) || !move("a", 7, 9) || move("a", 7, 9) {
				t.Error("it is moved by another, or from elsewhere")
			}
			if sent, held := claim("a", now.Add(30*time.Second)); !held || sent != 9 {
				t.Errorf("kept: %d, %v", sent, held)
			}
			if sent, held := claim("b", now.Add(2*time.Minute)); !held || sent != 9 {
				t.Errorf("after its time: %d, %v", sent, held)
			}
			if move("a", 9, 10) {
				t.Error("who has it no more moves it")
			}
			rig.Must(t, s.ReleaseAuditSink(t.Context(), "sink", []byte("a")))
			if _, held := claim("a", now.Add(2*time.Minute)); held {
				t.Error("who has it no more gives it back")
			}
			rig.Must(t, s.ReleaseAuditSink(t.Context(), "sink", []byte("b")))
			if _, held := claim("a", now.Add(2*time.Minute)); !held {
				t.Error("what was given back is not there")
			}
			if _, held := claim("b", now.Add(-time.Hour)); !held {
				t.Error("a claim of a clock that ran ahead lasts")
			}
		})
	}
}

// TestMetrics checks that the metrics exist from the start, pass promlint,
// and show waiting rows.
func TestMetrics(t *testing.T) {
	w := newTrail(t, sqlstore.Config{Dir: migrated.Dir(t)}, newSigner(t))
	registry := prometheus.NewRegistry()
	c := w.config(t)
	c.Metrics = NewMetrics(registry)
	reader, writer := io.Pipe()
	c.Out = NewStdout(writer)
	r := New(c, Target{Name: "stdout", scheme: "stdout"})
	problems, err := testutil.GatherAndLint(registry)
	rig.Must(t, err)
	if n, err := testutil.GatherAndCount(registry); err != nil || n != 4 || len(problems) > 0 {
		t.Errorf("%d series, %v, %v", n, problems, err)
	}
	value := func(name string) float64 {
		families, err := registry.Gather()
		rig.Must(t, err)
		for _, f := range families {
			if m := f.GetMetric()[0]; f.GetName() == "keyserver_audit_sink_"+name {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
		t.Fatal(name)
		return 0
	}
	w.write(t, 7)
	background(t, r.Run)
	rig.Soon(t, "rows wait for who does not read", func() bool { return value("lag_rows") == 7 && value("lag_seconds") > 0 })
	var in inbox.Inbox
	go func() {
		lines := bufio.NewScanner(reader)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if err := in.Take(lines.Bytes()); err != nil {
				t.Error(err)
			}
		}
	}()
	rig.Soon(t, "no row waits", func() bool { return value("lag_rows") == 0 && value("lag_seconds") == 0 && value("sent_total") == 7 })
	if proven, err := in.Proven(w.tree.Signer.Verifier); err != nil || proven != 7 || value("failures_total") != 0 {
		t.Errorf("%d, %v, %v failures", proven, err, value("failures_total"))
	}
	rig.Must(t, writer.CloseWithError(io.ErrClosedPipe))
	rig.Must(t, reader.CloseWithError(io.ErrClosedPipe))
	w.write(t, 1)
	rig.Soon(t, "a failure is counted", func() bool { return value("failures_total") > 0 && value("lag_rows") == 1 })
}

// TestACursorThatNobodyCanHave checks that a sink whose stored position is after the last row does not count as
// complete.
func TestACursorThatNobodyCanHave(t *testing.T) {
	for _, sent := range []int64{21, 1<<63 - 1, -5} {
		dir := t.TempDir()
		w := newTrail(t, sqlstore.Config{Dir: dir}, newSigner(t))
		w.write(t, 20)
		r := New(w.config(t), Target{Name: "sink", scheme: "stdout"})
		rig.Must(t, r.claim(t.Context(), time.Now()))
		db, err := sql.Open("sqlite", filepath.Join(dir, sqlite.DatabaseFile))
		rig.Must(t, err)
		_, err = db.Exec(`UPDATE audit_sinks SET sent = ?`, sent)
		rig.Must(t, err)
		rig.Must(t, db.Close())
		rig.Must(t, r.claim(t.Context(), time.Now()))
		if _, _, err := r.next(t.Context()); err == nil || !strings.Contains(err.Error(), fmt.Sprint("up to ", sent)) {
			t.Errorf("%d: %v", sent, err)
		}
	}
}
