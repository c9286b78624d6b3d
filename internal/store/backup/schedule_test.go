package backup_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/prometheus/client_golang/prometheus"
	"gocloud.dev/blob/memblob"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/blobstore"
	"github.com/keyserver-operator/keyserver-operator/internal/store/backup"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest/migrated"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// diary is a schedule with its own clock, and the audit rows that it wrote.
type diary struct {
	*backup.Schedule
	store *sqlstore.Store
	at    time.Time
	rows  []string
	log   bytes.Buffer
}

func newDiary(t *testing.T, cfg sqlstore.Config, place string) *diary {
	t.Helper()
	store, err := sqlstore.Open(t.Context(), cfg)
	rig.Must(t, err)
	t.Cleanup(func() { rig.Must(t, store.Close()) })
	identity, err := age.GenerateX25519Identity()
	rig.Must(t, err)
	d := &diary{store: store, at: time.Unix(1_700_000_000, 0)}
	clock := func() time.Time { return d.at }
	d.Schedule = &backup.Schedule{
		Maker: &backup.Maker{Store: store, System: 7, ServerName: "keys", Key: "keys+1", Version: "test", Clock: clock,
			KEK: func(context.Context) keyserver.KEK { return keyserver.KEK{Scheme: "base64key"} }},
		Every: time.Hour, Place: place, Keep: 3, Recipient: identity.Recipient().String(), Clock: clock,
		Logger: slog.New(slog.NewTextHandler(&d.log, nil)),
		Record: func(_ context.Context, outcome keyserver.Outcome, name string) error {
			d.rows = append(d.rows, string(outcome)+" "+name)
			return nil
		},
	}
	d.Begin()
	return d
}

func (d *diary) passes(t *testing.T, after time.Duration) {
	t.Helper()
	d.at = d.at.Add(after)
	d.Turn(t.Context())
}

func names(t *testing.T, p backup.Place) []string {
	t.Helper()
	all, err := p.List(t.Context(), 0)
	rig.Must(t, err)
	var list []string
	for _, k := range all {
		list = append(list, k.Name)
	}
	return list
}

func open(t *testing.T, place string) backup.Place {
	t.Helper()
	p, err := backup.OpenPlace(t.Context(), place, false)
	rig.Must(t, err)
	t.Cleanup(func() { rig.Must(t, p.Close()) })
	return p
}

// A second key server with the same system id neither writes nor removes objects in the destination of
// the first key server.
func TestAPlaceOfAnotherKeyServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "backups")
	first, second := newDiary(t, sqlstore.Config{Dir: t.TempDir()}, dir), newDiary(t, sqlstore.Config{Dir: t.TempDir()}, dir)
	second.Maker.Key, second.Keep = "keys+2", 1
	for range 3 {
		first.passes(t, time.Hour)
	}
	made := names(t, open(t, dir))
	if len(made) != 3 {
		t.Fatal(made)
	}
	second.at = first.at
	for range 2 {
		second.passes(t, time.Hour)
	}
	if is := names(t, open(t, dir)); !slices.Equal(is, made) || len(second.rows) > 0 {
		t.Errorf("%v became %v, %v", made, is, second.rows)
	}
	if text := second.log.String(); strings.Count(text, "belongs to another key server with the system id 7") != 1 || !strings.Contains(text, backup.OwnerName(7)) {
		t.Error(text)
	}
	rig.Must(t, os.Remove(filepath.Join(dir, backup.OwnerName(7)))) // the remedy if the other key server no longer exists
	second.passes(t, time.Hour)
	if len(second.rows) != 1 {
		t.Errorf("%v\n%s", second.rows, second.log.String())
	}
}

// An empty file with the name of a backup comes from an interrupted write and is ignored.
func TestEmptyBackupsArePassedOver(t *testing.T) {
	dir := t.TempDir()
	put := func(name, content string) {
		rig.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	put("keyserver-7-20260102T000000Z.age", "x")
	put("keyserver-7-20260103T000000Z.age", "")
	put("keyserver-8-20260101T000000Z.age", "")
	found, err := backup.Find(t.Context(), dir, "")
	rig.Must(t, err)
	rig.Must(t, found.From.Close())
	if found.Name != "keyserver-7-20260102T000000Z.age" || len(found.Skipped) != 2 {
		t.Errorf("%+v", found)
	}
	if newer, err := backup.NewerThan(t.Context(), dir, time.Date(2026, 1, 2, 1, 0, 0, 0, time.UTC)); err != nil || newer {
		t.Errorf("an empty one is newer: %v", err)
	}
	put("keyserver-7-20260102T000000Z.age", "")
	if _, err := backup.Find(t.Context(), dir, ""); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Error(err)
	}
}

func TestTheNewestAreKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "backups")
	rig.Must(t, os.Mkdir(dir, 0o700))
	// Files of other key servers and programs, which stay; an old backup and its key, which are removed.
	others := []string{"keyserver-8-20200101T000000Z.age", "notes.txt", "keyserver-7-20200101T000000Z.age.txt", "keyserver-7-latest.age"}
	for _, name := range append([]string{"keyserver-7-20200101T000000Z.age", "keyserver-7-20200101T000000Z.age.kek"}, others...) {
		rig.Must(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600))
	}
	d := newDiary(t, sqlstore.Config{Dir: t.TempDir()}, dir)
	for range 5 {
		d.passes(t, time.Hour)
		d.passes(t, time.Minute) // no backup is due
	}
	if len(d.rows) != 5 || d.Late() != "" {
		t.Errorf("%v, %s\n%s", d.rows, d.Late(), d.log.String())
	}
	var left []string
	entries, err := os.ReadDir(dir)
	rig.Must(t, err)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	want := slices.Concat(others, []string{backup.OwnerName(7), backup.Name(7, d.at.Add(-time.Minute)), backup.Name(7, d.at.Add(-62*time.Minute)), backup.Name(7, d.at.Add(-123*time.Minute))})
	slices.Sort(want)
	if !slices.Equal(left, want) {
		t.Errorf("left: %v\nwant: %v", left, want)
	}
}

// A backup with a time in the future, or an empty one, does not count as the newest backup or for Keep.
func TestBackupsOfTheFuture(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "backups")
	rig.Must(t, os.Mkdir(dir, 0o700))
	strange := []string{"keyserver-7-29990101T000000Z.age", "keyserver-7-29990102T000000Z.age", "keyserver-7-29990103T000000Z.age", "keyserver-7-20200101T000000Z.age"}
	for i, name := range strange {
		rig.Must(t, os.WriteFile(filepath.Join(dir, name), []byte("x")[:i%2], 0o600))
	}
	rig.Must(t, os.Truncate(filepath.Join(dir, strange[3]), 0))
	d := newDiary(t, sqlstore.Config{Dir: t.TempDir()}, dir)
	for range 3 {
		d.passes(t, time.Hour)
		d.passes(t, time.Minute) // no backup is due
	}
	if len(d.rows) != 3 || strings.Contains(d.log.String(), "backup removed") || strings.Count(d.log.String(), "it is ignored") != 1 {
		t.Errorf("%v\n%s", d.rows, d.log.String())
	}
	entries, err := os.ReadDir(dir)
	rig.Must(t, err)
	if len(entries) != len(strange)+1+3 {
		t.Error(entries)
	}
	r := prometheus.NewRegistry()
	d.Observe(r)
	if got, want := value(t, r, "keyserver_backup_last_success_timestamp_seconds"), float64(d.at.Add(-time.Minute).Unix()); got != want {
		t.Errorf("the newest is of %v, want %v", got, want)
	}
}

// A process finds a backup of an earlier process in a bucket. The next backup is due an hour after that
// backup.
func TestABucketSaysWhenTheNextIsDue(t *testing.T) {
	bucket := blobstore.In(memblob.OpenBucket(nil))
	d := newDiary(t, sqlstore.Config{Dir: t.TempDir()}, "file:///nowhere")
	d.KeepIn(bucket)
	d.passes(t, 0)
	again := newDiary(t, sqlstore.Config{Dir: t.TempDir()}, "file:///nowhere")
	again.KeepIn(bucket)
	again.at = d.at
	again.passes(t, time.Minute)
	if got := names(t, backup.Place{Store: bucket}); len(got) != 1 || len(again.rows) != 0 {
		t.Errorf("%v, %v", got, again.rows)
	}
	again.passes(t, time.Hour)
	if got := names(t, backup.Place{Store: bucket}); len(got) != 2 {
		t.Error(got)
	}
	r := prometheus.NewRegistry()
	again.Observe(r)
	for name, want := range map[string]float64{
		"keyserver_backup_last_success_timestamp_seconds": float64(again.at.Unix()), "keyserver_backup_interval_seconds": 3600, "keyserver_backup_failures_total": 0,
	} {
		if got := value(t, r, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if value(t, r, "keyserver_backup_last_size_bytes") < 1000 {
		t.Error("it has no size")
	}
}

func value(t *testing.T, r *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := r.Gather()
	rig.Must(t, err)
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}

// If a destination cannot be written, that is logged once, and Late reports it when a backup is late. The next
// success is logged.
func TestAPlaceThatCannotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "backups")
	rig.Must(t, os.WriteFile(dir, nil, 0o600)) // a file instead of the directory
	d := newDiary(t, sqlstore.Config{Dir: t.TempDir()}, dir)
	d.passes(t, 0)
	d.passes(t, time.Hour)
	if d.Late() != "" {
		t.Errorf("it is late after an hour: %s", d.Late())
	}
	d.passes(t, 61*time.Minute)
	if !strings.Contains(d.Late(), "--backup-to") || strings.Count(d.log.String(), "no backup can be made") != 1 {
		t.Errorf("%s\n%s", d.Late(), d.log.String())
	}
	r := prometheus.NewRegistry()
	d.Observe(r)
	if got := value(t, r, "keyserver_backup_failures_total"); got != 3 {
		t.Errorf("%v failures are counted", got)
	}
	rig.Must(t, os.Remove(dir))
	d.passes(t, time.Minute)
	if d.Late() != "" || !strings.Contains(d.log.String(), "made again") || len(d.rows) != 1 {
		t.Errorf("%s\n%s%v", d.Late(), d.log.String(), d.rows)
	}
}

// If the audit row of a backup cannot be written, no backup is made.
func TestABackupThatFails(t *testing.T) {
	dir := t.TempDir()
	d := newDiary(t, sqlstore.Config{Dir: t.TempDir()}, dir)
	d.Maker.KEK = func(context.Context) keyserver.KEK { panic("not reached") }
	d.Record = func(_ context.Context, outcome keyserver.Outcome, _ string) error {
		d.rows = append(d.rows, string(outcome))
		return errors.New("no row can be written")
	}
	d.passes(t, 0)
	if left := names(t, open(t, dir)); len(left) > 0 || len(d.rows) != 1 {
		t.Errorf("%v is left, %v", left, d.rows)
	}
}

// Only one of several replicas makes a backup at a time.
func TestReplicasMakeOne(t *testing.T) {
	url, dir := migrated.Database(t), t.TempDir()
	one, other := newDiary(t, sqlstore.Config{URL: url}, dir), newDiary(t, sqlstore.Config{URL: url}, dir)
	begun, may := make(chan struct{}), make(chan struct{})
	record := one.Record
	one.Record = func(ctx context.Context, outcome keyserver.Outcome, name string) error {
		close(begun)
		<-may
		return record(ctx, outcome, name)
	}
	var group sync.WaitGroup
	group.Go(func() { one.Turn(t.Context()) })
	<-begun
	other.passes(t, 0)
	if len(other.rows) != 0 || strings.Contains(other.log.String(), "no backup") {
		t.Errorf("another one made one, or failed: %v\n%s", other.rows, other.log.String())
	}
	close(may)
	group.Wait()
	other.passes(t, time.Minute)
	if len(one.rows) != 1 || len(other.rows) != 0 {
		t.Errorf("%v, %v", one.rows, other.rows)
	}
}
