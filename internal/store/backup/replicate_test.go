package backup_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/backup"
	"github.com/keyserver-operator/keyserver-operator/internal/store/snapshot"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/bucket"
)

// replica is a database that the test writes and replicates step by step.
type replica struct {
	*backup.Replicator
	store    *sqlstore.Store
	rows     *audit.Writer
	dir      string // of the database
	place    string
	identity *age.X25519Identity
	log      bytes.Buffer
	records  []string
	ahead    time.Duration // how far the clock is ahead
	written  int64
	moments  []moment
}

// moment is a restore point with the number of rows that were acknowledged before it.
type moment struct {
	at   time.Time
	rows int64
}

func newReplica(t *testing.T, system keyserver.SystemID, place string) *replica {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	rig.Must(t, err)
	r := &replica{dir: t.TempDir(), place: place, identity: identity}
	clock := func() time.Time { return time.Now().Add(r.ahead) }
	r.store, err = sqlstore.Open(t.Context(), sqlstore.Config{Dir: r.dir, Shipped: true, Clock: clock})
	rig.Must(t, err)
	r.rows, err = audit.NewWriter(t.Context(), r.store, audit.Options{Batch: 4096})
	rig.Must(t, err)
	r.Replicator = &backup.Replicator{
		Store: r.store, Place: place, Keep: 2 * time.Hour, Recipient: identity.Recipient().String(), Logger: slog.New(slog.NewTextHandler(&r.log, nil)),
		Maker: &backup.Maker{Store: r.store, System: system, ServerName: "keys", Key: "keys+1", Version: "test", Clock: clock,
			KEK: func(context.Context) keyserver.KEK { return keyserver.KEK{Scheme: "base64key"} }},
		Record: func(_ context.Context, outcome keyserver.Outcome, name string) error {
			r.records = append(r.records, string(outcome)+" "+name)
			return nil
		},
	}
	r.Start()
	t.Cleanup(func() { rig.Must(t, r.close()) })
	return r
}

func (r *replica) close() error {
	r.End()
	return errors.Join(r.rows.Close(), r.store.Close())
}

func (r *replica) write(t *testing.T, n int) {
	t.Helper()
	many := make([]keyserver.AuditEntry, n)
	for i := range many {
		many[i] = keyserver.AuditEntry{Operation: "hmacData", Outcome: keyserver.Allowed, Kind: keyserver.PasswordSession, RequestID: fmt.Sprint(r.written, i), Object: strings.Repeat("x", 1000)}
	}
	rig.Must(t, r.rows.WriteAll(t.Context(), many))
	r.written += int64(n)
}

// passes calls Pass until a base is complete and all changes are shipped.
func (r *replica) passes(t *testing.T) {
	t.Helper()
	rig.Within(t, time.Minute, "a base is made", func() bool {
		rig.Must(t, r.Pass(t.Context()))
		return !r.Making() && r.Current()
	})
	rig.Must(t, r.Pass(t.Context()))
	r.moments = append(r.moments, moment{r.Until(), r.written})
}

// restored restores a restore point, and returns its number of audit rows.
func (r *replica) restored(t *testing.T, name string, at time.Time) (int64, error) {
	t.Helper()
	m, err := backup.FindRestorePoint(t.Context(), r.place, name, at)
	if err != nil {
		return 0, err
	}
	if m == nil {
		return 0, errNoReplica
	}
	dir := filepath.Join(t.TempDir(), "new")
	done, err := m.Restore(t.Context(), r.identity.String(), backup.Options{Target: sqlstore.Config{Dir: dir}, Clock: time.Now})
	if err := errors.Join(err, m.Close()); err != nil {
		if _, err := os.Stat(filepath.Join(dir, sqlite.DatabaseFile)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("something was made of what was refused: %v", err)
		}
		return 0, err
	}
	return done.Head.Last, os.RemoveAll(dir)
}

var errNoReplica = errors.New("no replica")

// holds restores and checks all recorded restore points, and the newest one.
func (r *replica) holds(t *testing.T) {
	t.Helper()
	newest := r.moments[len(r.moments)-1]
	last := moment{rows: newest.rows}
	if r.ahead > time.Hour { // a restore point in the future is used only if --at asks for it
		if is, err := r.restored(t, "", last.at); err == nil || !strings.Contains(err.Error(), "there is no replica at or before") {
			t.Errorf("of the future: %d rows, %v", is, err)
		}
		last.at = time.Now().Add(r.ahead)
	}
	for _, m := range append(slices.Clone(r.moments), last) {
		if is, err := r.restored(t, "", m.at); err != nil || is != m.rows {
			t.Errorf("at %s: %d rows, not %d: %v", m.at, is, m.rows, err)
		}
	}
}

func (r *replica) objects(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(r.place)
	rig.Must(t, err)
	var all []string
	for _, e := range entries {
		if e.Name() != backup.OwnerName(7) {
			all = append(all, e.Name())
		}
	}
	return all
}

func (r *replica) walSize(t *testing.T) int64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(r.dir, sqlite.DatabaseFile+"-wal"))
	rig.Must(t, err)
	return info.Size()
}

// Each restore point can be restored, although the log is copied into the database file repeatedly,
// even during a long read of an older state.
func TestEachMomentOfAReplica(t *testing.T) {
	r := newReplica(t, 7, t.TempDir())
	r.FoldAt(300)
	r.passes(t)
	var reader *snapshot.Snapshot
	for i := range 9 {
		r.write(t, 400)
		if i%2 == 0 { // a row that is only in the journal
			rig.Must(t, r.rows.Write(t.Context(), keyserver.AuditEntry{Operation: "hmacData", Outcome: keyserver.Allowed, Kind: keyserver.PasswordSession}))
			r.written++
		}
		r.passes(t)
		switch i {
		case 3:
			var err error
			reader, err = r.store.Snapshot(t.Context())
			rig.Must(t, err)
		case 6:
			rig.Must(t, reader.Close())
		}
	}
	if len(r.records) != 1 || !strings.HasPrefix(r.records[0], "allowed replica-7-") {
		t.Errorf("bases: %q", r.records)
	}
	if size := r.walSize(t); size > 8<<20 {
		t.Errorf("the log has %d bytes: it is not folded", size)
	}
	if folds := r.Folds(); folds < 3 {
		t.Errorf("the log was folded %d times", folds)
	}
	r.moments = []moment{r.moments[2], r.moments[5], r.moments[9]} // only three: a restore is slow
	r.holds(t)
}

// If objects of a replica are missing, later changes could not be restored. The Replicator logs that
// and makes a new base.
func TestAReplicaThatIsGone(t *testing.T) {
	for name, gone := range map[string]string{"Everything": "*", "TheBase": "*-000000000.age", "TheLast": "*-000000002-*.age"} {
		t.Run(name, func(t *testing.T) {
			r := newReplica(t, 7, filepath.Join(t.TempDir(), "place"))
			r.passes(t)
			r.write(t, 100)
			r.passes(t)
			found, err := filepath.Glob(filepath.Join(r.place, gone))
			rig.Must(t, err)
			if len(found) == 0 {
				entries, _ := os.ReadDir(r.place)
				t.Fatalf("nothing matches among %v", entries)
			}
			for _, file := range found {
				rig.Must(t, os.Remove(file))
			}
			r.ahead += time.Minute
			r.write(t, 100)
			r.passes(t)
			if len(r.records) != 2 || strings.Count(r.log.String(), "objects in --replicate-to are missing") != 1 {
				t.Errorf("bases %q\n%s", r.records, r.log.String())
			}
			if rows, err := r.restored(t, "", time.Time{}); err != nil || rows != r.written {
				t.Errorf("%d of %d rows, %v", rows, r.written, err)
			}
		})
	}
}

// While a destination is unavailable, writes continue. They are replicated later. If the log grew too large,
// a new base is made.
func TestAPlaceThatIsAway(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		most   int64
		bases  int
	}{
		"Short": {"the log waits", 1 << 30, 1},
		"Long":  {"the log is bounded", 128 << 10, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplica(t, 7, filepath.Join(t.TempDir(), "place"))
			r.passes(t)
			r.write(t, 100)
			r.passes(t)
			r.MaxLogBytes = tc.most
			rig.Must(t, os.Rename(r.place, r.place+".away"))
			rig.Must(t, os.WriteFile(r.place, nil, 0o600))
			for range 5 {
				r.write(t, 1000)
				if err := r.Turn(t.Context()); tc.bases == 1 && err == nil {
					t.Errorf("%s: nothing was said", tc.reason)
				}
			}
			registry := prometheus.NewRegistry()
			r.Observe(registry)
			if got := value(t, registry, "keyserver_replication_failures_total"); got == 0 {
				t.Error("no failure was counted")
			}
			if text := r.Late(); text != "" {
				t.Errorf("too early: %s", text)
			}
			r.ahead += 2 * time.Minute
			_ = r.Turn(t.Context())
			if text := r.Late(); !strings.Contains(text, "--replicate-to") {
				t.Errorf("%s: said %q", tc.reason, text)
			}
			if size := r.walSize(t); tc.bases > 1 && size > tc.most+8<<20 {
				t.Errorf("%s: it has %d bytes", tc.reason, size)
			}
			rig.Must(t, os.Remove(r.place))
			rig.Must(t, os.Rename(r.place+".away", r.place))
			r.MaxLogBytes = 1 << 30
			r.ahead += time.Minute
			rig.Within(t, time.Minute, "it is replicated again", func() bool {
				return r.Turn(t.Context()) == nil && !r.Making() && r.Current() && r.Late() == ""
			})
			r.passes(t)
			if len(r.records) != tc.bases {
				t.Errorf("%s: bases %q", tc.reason, r.records)
			}
			if got := value(t, registry, "keyserver_replication_last_timestamp_seconds"); got < float64(time.Now().Unix()) {
				t.Errorf("last moment %f", got)
			}
			if strings.Count(r.log.String(), "is replicated again") != 1 || strings.Count(r.log.String(), "is not replicated\"") != 1 {
				t.Errorf("each is said once: %s", r.log.String())
			}
			r.holds(t)
		})
	}
}

// A new base is made if the log was copied into the database file before it was replicated.
func TestALogThatIsFoldedByOthers(t *testing.T) {
	r := newReplica(t, 7, t.TempDir())
	r.passes(t)
	r.write(t, 100)
	log, err := r.store.Log()
	rig.Must(t, err)
	rig.Must(t, log.Discard(t.Context()))
	rig.Must(t, log.Close())
	r.write(t, 100)
	r.passes(t)
	if len(r.records) != 2 {
		t.Errorf("bases: %q", r.records)
	}
	r.holds(t)
}

// Backups and replicas can be stored in a bucket and restored from it.
func TestInABucket(t *testing.T) {
	place, _ := bucket.New(t)
	d := newDiary(t, sqlstore.Config{Dir: t.TempDir()}, place)
	for range 5 {
		d.passes(t, 2*time.Hour)
	}
	r := newReplica(t, 7, place)
	r.passes(t)
	for range 3 {
		r.write(t, 20)
		r.passes(t)
	}
	r.holds(t)
	p, err := backup.OpenPlace(t.Context(), place, false)
	rig.Must(t, err)
	kept, err := p.List(t.Context(), 7)
	rig.Must(t, errors.Join(err, p.Close()))
	if len(kept) != 3 {
		t.Errorf("backups that were kept: %+v", kept)
	}
}

// A base and its segments older than Keep are removed if a later base has a restore point older than Keep.
func TestWhatIsTooOldGoes(t *testing.T) {
	r := newReplica(t, 7, t.TempDir())
	for range 8 {
		r.write(t, 10)
		r.passes(t)
		r.ahead += 90 * time.Minute
		r.passes(t)
		r.Pruned()
	}
	var generations []string
	for _, name := range r.objects(t) {
		if g := name[:len("replica-7-20060102T150405Z-00000000")]; !slices.Contains(generations, g) {
			generations = append(generations, g)
		}
	}
	if len(r.records) < 4 || len(generations) >= len(r.records) || len(generations) < 2 {
		t.Errorf("%d are there of %q: %q", len(generations), r.records, generations)
	}
	kept := time.Now().Add(r.ahead - 2*time.Hour)
	r.moments = slices.DeleteFunc(r.moments, func(m moment) bool { return m.at.Before(kept) })
	r.holds(t)
	if _, err := r.restored(t, "", kept); err != nil {
		t.Errorf("the oldest that is promised: %v", err)
	}
}

func TestWhatIsRefusedOfAReplica(t *testing.T) {
	r := newReplica(t, 7, t.TempDir())
	r.passes(t)
	for range 4 {
		r.write(t, 20)
		r.passes(t)
	}
	other := newReplica(t, 7, t.TempDir())
	other.passes(t)
	other.write(t, 20)
	other.passes(t)
	all, theirs := r.objects(t), other.objects(t)
	if len(all) < 5 || len(theirs) < 2 {
		t.Fatalf("%q, %q", all, theirs)
	}
	generation := all[0][:strings.LastIndex(all[0], "-")]
	read := func(path string) []byte {
		raw, err := os.ReadFile(path)
		rig.Must(t, err)
		return raw
	}
	for name, tc := range map[string]struct {
		reason string
		spoil  func(place string) error
		says   []string
		at     time.Time
		name   string
	}{
		"Missing": {"a segment was removed", func(p string) error { return os.Remove(filepath.Join(p, all[3])) },
			[]string{"segment 3 of " + generation + " is missing", "--at"}, time.Time{}, ""},
		"MissingFirst": {"nothing is left to restore", func(p string) error { return os.Remove(filepath.Join(p, all[1])) },
			[]string{"segment 1 of " + generation + " is missing", "another replica or backup"}, time.Time{}, ""},
		"NoBase": {"the base was removed", func(p string) error { return os.Remove(filepath.Join(p, all[0])) }, []string{all[0], "is missing", "put it back"}, time.Time{}, ""},
		"Empty": {"a segment that nothing was written to", func(p string) error { return os.Truncate(filepath.Join(p, all[3]), 0) },
			[]string{"segment 3 of " + generation, all[3] + " is empty", "--at"}, time.Time{}, ""},
		"EmptyBase": {"a base that nothing was written to", func(p string) error { return os.Truncate(filepath.Join(p, all[0]), 0) },
			[]string{all[0], "is missing", "put it back"}, time.Time{}, ""},
		"Cut": {"a segment was cut", func(p string) error {
			return os.Truncate(filepath.Join(p, all[3]), int64(len(read(filepath.Join(p, all[3])))-100))
		},
			[]string{all[3], "damaged", "--at"}, time.Time{}, ""},
		"Flipped": {"a bit of a segment", func(p string) error {
			raw := read(filepath.Join(p, all[3]))
			raw[len(raw)/2] ^= 1
			return os.WriteFile(filepath.Join(p, all[3]), raw, 0o600)
		}, []string{all[3], "damaged", "--at"}, time.Time{}, ""},
		"FlippedBase": {"a bit of the base", func(p string) error {
			raw := read(filepath.Join(p, all[0]))
			raw[len(raw)/2] ^= 1
			return os.WriteFile(filepath.Join(p, all[0]), raw, 0o600)
		}, []string{all[0], "damaged"}, time.Time{}, ""},
		"Swapped": {"one segment under the name of another", func(p string) error {
			return os.WriteFile(filepath.Join(p, all[3]), read(filepath.Join(p, all[2])), 0o600)
		}, []string{all[3], "another name", "--at"}, time.Time{}, ""},
		"Foreign": {"a file of something else", func(p string) error { return os.WriteFile(filepath.Join(p, all[2]), []byte("hello"), 0o600) },
			[]string{all[2], "not a backup of this program", "--at"}, time.Time{}, ""},
		"OfAnother": {"a segment for another recipient", func(p string) error {
			return os.WriteFile(filepath.Join(p, all[2]), read(filepath.Join(other.place, theirs[1])), 0o600)
		}, []string{all[2], "another recipient"}, time.Time{}, ""},
		"Twice": {"two segments of one number", func(p string) error {
			return os.WriteFile(filepath.Join(p, all[2][:len(all[2])-len("000Z.age")]+"000Z.age"), []byte("x"), 0o600)
		}, []string{"two segments 2 of"}, time.Time{}, ""},
		"OfSeveral": {"replicas of two key servers", func(p string) error {
			for _, name := range all[:2] {
				if err := os.WriteFile(filepath.Join(p, strings.Replace(name, "replica-7-", "replica-8-", 1)), []byte("x"), 0o600); err != nil {
					return err
				}
			}
			return nil
		}, []string{"several key servers", "--backup"}, time.Time{}, ""},
		"TooEarly": {"a time of before", func(string) error { return nil }, []string{"the oldest is of"}, time.Now().Add(-time.Hour), ""},
		"Unknown":  {"a replica that is not there", func(string) error { return nil }, []string{errNoReplica.Error()}, time.Time{}, "replica-7-20260101T000000Z-00000000"},
	} {
		t.Run(name, func(t *testing.T) {
			spoiled := *r
			spoiled.place = t.TempDir()
			rig.Must(t, os.CopyFS(spoiled.place, os.DirFS(r.place)))
			rig.Must(t, tc.spoil(spoiled.place))
			_, err := spoiled.restored(t, tc.name, tc.at)
			if err == nil {
				t.Fatalf("%s: restored", tc.reason)
			}
			for _, text := range tc.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%s: %v does not say %q", tc.reason, err, text)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: more than a sentence: %v", tc.reason, err)
			}
		})
	}
	// Restore points before the damage can be restored.
	rig.Must(t, os.Remove(filepath.Join(r.place, all[4])))
	if is, err := r.restored(t, generation, r.moments[2].at); err != nil || is != r.moments[2].rows {
		t.Errorf("before the segment that is missing: %d rows, %v", is, err)
	}
}

// If the newest base is missing, FindRestorePoint returns an error and no older restore point.
func TestABaseThatIsGone(t *testing.T) {
	r := newReplica(t, 7, t.TempDir())
	r.passes(t)
	r.write(t, 20)
	r.passes(t)
	older := r.objects(t)
	r.ahead += 25 * time.Hour // another base is due
	r.write(t, 20)
	r.passes(t)
	r.write(t, 20)
	r.passes(t)
	all := r.objects(t)
	base := all[slices.IndexFunc(all, func(name string) bool { return name > older[len(older)-1] && strings.HasSuffix(name, "-000000000.age") })]
	rig.Must(t, os.Remove(filepath.Join(r.place, base)))
	generation := strings.TrimSuffix(older[0], "-000000000.age")
	at := time.Now().Add(r.ahead)
	if _, err := r.restored(t, "", at); err == nil || !strings.Contains(err.Error(), base+" is missing") || !strings.Contains(err.Error(), "--backup "+generation) {
		t.Errorf("an older one is taken: %v", err)
	}
	if _, err := r.restored(t, generation, at); err != nil {
		t.Error(err)
	}
}

// Empty files with the names of segments do not stop a restore.
func TestEmptySegmentsArePassedOver(t *testing.T) {
	r := newReplica(t, 7, t.TempDir())
	r.passes(t)
	r.write(t, 20)
	r.passes(t)
	all := r.objects(t)
	strange := []string{
		strings.Replace(all[0], "replica-7-", "replica-8-", 1), strings.Replace(all[1], "replica-7-", "replica-8-", 1),
		all[1][:len(all[1])-len("000Z.age")] + "000Z.age", "replica-7-20260101T000000Z-00000000-000000001-20260101T000000.000Z.age",
	}
	for _, name := range strange {
		rig.Must(t, os.WriteFile(filepath.Join(r.place, name), nil, 0o600))
	}
	m, err := backup.FindRestorePoint(t.Context(), r.place, "", time.Time{})
	rig.Must(t, err)
	rig.Must(t, m.Close())
	if len(m.Skipped) != len(strange) {
		t.Errorf("passed over: %q", m.Skipped)
	}
	r.holds(t)
}

// Another program has stored an object with the name of a segment that could not be written. A new base
// is then made.
func TestASegmentOfSomebodyElse(t *testing.T) {
	r := newReplica(t, 7, filepath.Join(t.TempDir(), "place"))
	r.passes(t)
	r.write(t, 20)
	rig.Must(t, os.Rename(r.place, r.place+".away"))
	rig.Must(t, os.WriteFile(r.place, nil, 0o600))
	failed := r.Turn(t.Context())
	if failed == nil {
		t.Fatal("nothing was said")
	}
	name := regexp.MustCompile(`replica-7-[-0-9A-Za-z.]*\.age`).FindString(failed.Error())
	rig.Must(t, os.Remove(r.place))
	rig.Must(t, os.Rename(r.place+".away", r.place))
	rig.Must(t, os.WriteFile(filepath.Join(r.place, name), []byte("somebody else's"), 0o600))
	r.ahead += time.Minute
	if err := r.Turn(t.Context()); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "another process") {
		t.Errorf("it is taken for its own: %v", err)
	}
	r.ahead += time.Minute
	r.passes(t)
	if len(r.records) != 2 {
		t.Errorf("bases: %q", r.records)
	}
	if is, err := r.restored(t, "", time.Now().Add(r.ahead)); err != nil || is != r.written {
		t.Errorf("%d of %d rows, %v", is, r.written, err)
	}
}

// A second key server with the same system id neither writes nor removes objects in the destination of
// the first key server.
func TestAReplicaOfAnotherKeyServer(t *testing.T) {
	first := newReplica(t, 7, t.TempDir())
	first.passes(t)
	all := first.objects(t)
	second := newReplica(t, 7, first.place)
	second.Maker.Key = "keys+2"
	for range 2 {
		if err := second.Turn(t.Context()); err == nil || !strings.Contains(err.Error(), "belongs to another key server with the system id 7") {
			t.Errorf("it writes there: %v", err)
		}
	}
	if is := first.objects(t); !slices.Equal(is, all) || len(second.records) > 0 || second.Making() {
		t.Errorf("%q became %q, %q", all, is, second.records)
	}
}
