package archive_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"gocloud.dev/blob/memblob"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/archive"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/blobstore"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest/migrated"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// house is a database with an audit log, and the key of its log.
type house struct {
	*sqlstore.Store
	signer *tree.Signer
	at     time.Time
}

func newHouse(t *testing.T, cfg sqlstore.Config) *house {
	t.Helper()
	store, err := sqlstore.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return &house{store, newSigner(t), time.Unix(1_700_000_000, 0).UTC()}
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

func (h *house) write(t *testing.T, rows int) {
	t.Helper()
	w, err := audit.NewWriter(t.Context(), h.Store, audit.Options{Batch: 4096, Clock: func() time.Time { return h.at }})
	if err != nil {
		t.Fatal(err)
	}
	for rows > 0 {
		n := min(rows, 4096)
		entries := make([]keyserver.AuditEntry, n)
		for i := range entries {
			entries[i] = keyserver.AuditEntry{
				Operation: "hmacData", Outcome: keyserver.Allowed, Kind: keyserver.PasswordSession, Object: fmt.Sprint("key ", rows-i),
				Principal: keyserver.PrincipalRef{System: 7, ID: values.IDFromUint64(uint64(i % 5))}, Address: "192.0.2.1",
			}
		}
		if err := w.WriteAll(t.Context(), entries); err != nil {
			t.Fatal(err)
		}
		rows -= n
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	h.grow(t)
}

func (h *house) grow(t *testing.T) {
	t.Helper()
	begin, err := tree.Begin(h.signer, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.GrowAuditTree(t.Context(), 0, nil, begin, nil); err != nil { // does nothing if the tree is not empty
		t.Fatal(err)
	}
	grown := tree.New(tree.Config{
		Store: h.Store, Signer: h.signer, Recent: tree.NewRecent(), Interval: time.Hour, Clock: time.Now,
		Logger: slog.New(slog.DiscardHandler), Alarm: func(p string) { t.Error(p) },
	})
	go grown.Run(t.Context())
	if _, err := grown.Receipt(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for {
		end, err := h.AuditEnd(t.Context())
		if err != nil || grown.Failing() != nil {
			t.Fatal(err, grown.Failing())
		}
		if grown.Size() >= end {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func open(t *testing.T, dir string) *archive.Archive {
	t.Helper()
	a, err := archive.Open(t.Context(), "file://"+dir+"?create_dir=true")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

func name(n int, suffix string) string {
	return fmt.Sprintf("%020d%s", n*archive.Rows+1, suffix)
}

// TestAnArchiveThatLies forges copies of an archive with two segments. A verification with the key must detect each
// forgery and name the row if possible.
func TestAnArchiveThatLies(t *testing.T) {
	h := newHouse(t, sqlstore.Config{Dir: t.TempDir()})
	h.write(t, archive.Rows+1000)
	early, err := h.AuditTree(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.write(t, archive.Rows+500)
	late, err := h.AuditTree(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	truth := filepath.Join(t.TempDir(), "archive")
	a := open(t, truth)
	for n := range 2 {
		if err := a.Seal(t.Context(), h.Store, h.signer.Verifier, int64(n*archive.Rows+1)); err != nil {
			t.Fatal(err)
		}
	}
	private(t, truth)

	// Another log with the same number of rows, signed with the same key.
	other := newHouse(t, sqlstore.Config{Dir: t.TempDir()})
	other.signer = h.signer
	other.write(t, 2*archive.Rows+10)
	forged := filepath.Join(t.TempDir(), "archive")
	for n := range 2 {
		if err := open(t, forged).Seal(t.Context(), other.Store, h.signer.Verifier, int64(n*archive.Rows+1)); err != nil {
			t.Fatal(err)
		}
	}
	forgedHead, err := other.AuditTree(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	for lie, c := range map[string]struct {
		plant func(dir string)
		noted []tree.Noted
		key   *tree.Signer
		says  string
	}{
		"a bit of the rows":     {plant: func(dir string) { flip(t, filepath.Join(dir, name(1, ".rows.zst"))) }, says: "row "},
		"a row, with its sums":  {plant: func(dir string) { rewrite(t, dir, 1, 77, nil) }, says: fmt.Sprint("row ", archive.Rows+79, " does not continue")},
		"the last row":          {plant: func(dir string) { rewrite(t, dir, 1, archive.Rows-1, nil) }, says: "do not match the checkpoint"},
		"a row is gone":         {plant: func(dir string) { rewrite(t, dir, 0, 5, []byte{}) }, says: "row 6 is damaged or in the wrong place"},
		"a cut object":          {plant: func(dir string) { cut(t, filepath.Join(dir, name(1, ".rows.zst"))) }, says: "was written with"},
		"no first segment":      {plant: func(dir string) { remove(t, dir, 0) }, says: fmt.Sprint("rows 1 to ", archive.Rows, " is missing")},
		"no segment at all":     {plant: func(dir string) { remove(t, dir, 0); remove(t, dir, 1) }, says: "no segment"},
		"no checkpoint":         {plant: func(dir string) { removeFile(t, filepath.Join(dir, name(1, ".checkpoint"))) }, says: "no checkpoint"},
		"a checkpoint too old":  {plant: func(dir string) { write(t, filepath.Join(dir, name(1, ".checkpoint")), early.Checkpoint) }, says: "does not cover"},
		"a forged checkpoint":   {plant: func(dir string) { flip(t, filepath.Join(dir, name(0, ".checkpoint"))) }, says: "checkpoint"},
		"another history":       {plant: func(dir string) { exchange(t, forged, dir, 1) }, says: "does not continue"},
		"another whole history": {plant: func(dir string) { exchange(t, forged, dir, 0); exchange(t, forged, dir, 1) }, noted: noted(early), says: "two histories"},
		"a note of another one": {plant: func(string) {}, noted: noted(forgedHead), says: ""},
		"another key":           {plant: func(string) {}, key: newSigner(t), says: "was not signed by its key"},
		"no rows":               {plant: func(dir string) { removeFile(t, filepath.Join(dir, name(1, ".rows.zst"))) }, says: "was changed: 00000000000000065537.rows.zst is missing"},
		"a manifest":            {plant: func(dir string) { write(t, filepath.Join(dir, name(0, ".json")), []byte("{}")) }, says: "does not describe the rows"},
		"a proof of history":    {plant: func(dir string) { amend(t, dir, 0, func(m *archive.Manifest) { m.Consistency[0][0] ^= 1 }) }, says: "does not continue the segments"},
		"a proof of the rows":   {plant: func(dir string) { amend(t, dir, 0, func(m *archive.Manifest) { m.Inclusion[0][0] ^= 1 }) }, says: "do not match the checkpoint"},
		"a huge manifest":       {plant: func(dir string) { write(t, filepath.Join(dir, name(0, ".json")), make([]byte, 1<<20)) }, says: "too large"},
	} {
		dir := filepath.Join(t.TempDir(), "archive")
		if err := os.CopyFS(dir, os.DirFS(truth)); err != nil {
			t.Fatal(err)
		}
		c.plant(dir)
		key := h.signer
		if c.key != nil {
			key = c.key
		}
		done, err := archive.Verify(t.Context(), open(t, dir), key.Verifier, c.noted...)
		if c.says == "" {
			// The log has later rows that the archive does not contain, so their checkpoint cannot be compared.
			if err != nil {
				t.Errorf("%s: %v, %+v", lie, err, done)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v after %d segments, want %q", lie, err, done.Segments, c.says)
		}
	}

	for _, noted := range [][]tree.Noted{nil, noted(early), noted(late), append(noted(late), noted(early)...)} {
		done, err := archive.Verify(t.Context(), a, h.signer.Verifier, noted...)
		if err != nil || done.Segments != 2 || done.Rows != 2*archive.Rows {
			t.Errorf("%+v, %v", done, err)
		}
	}
	if _, err := a.Check(t.Context(), other.Store, h.signer.Verifier, 1); !errors.Is(err, archive.ErrDamaged) {
		t.Errorf("the database has another history: %v", err)
	}
	if err := a.Seal(t.Context(), other.Store, h.signer.Verifier, 1); !errors.Is(err, archive.ErrDamaged) {
		t.Errorf("another history is archived over it: %v", err)
	}
	shows(t, a)
}

func shows(t *testing.T, a *archive.Archive) {
	t.Helper()
	var seqs []int64
	who := values.IDFromUint64(3)
	err := archive.Show(t.Context(), a, keyserver.AuditFilter{Principal: &who}, archive.Rows-10, archive.Rows+10, func(e *keyserver.AuditEntry) error {
		seqs = append(seqs, e.Seq)
		if e.Principal.ID != who || e.Address != "192.0.2.1" || e.Count != 1 {
			t.Errorf("%+v", e)
		}
		return nil
	})
	if err != nil || len(seqs) != 4 || seqs[0] < archive.Rows-10 || seqs[3] > archive.Rows+10 {
		t.Errorf("%v, %v", seqs, err)
	}
	if err := archive.Show(t.Context(), a, keyserver.AuditFilter{}, 10*archive.Rows, 0, nil); err == nil {
		t.Error("rows that are not there are shown")
	}
}

// TestWhatIsLeftOfAWrite simulates a process that was killed between writing two objects or while writing one.
func TestWhatIsLeftOfAWrite(t *testing.T) {
	h := newHouse(t, sqlstore.Config{Dir: t.TempDir()})
	h.write(t, archive.Rows+5)
	dir := filepath.Join(t.TempDir(), "archive")
	a := open(t, dir)
	seal := func() error { return a.Seal(t.Context(), h.Store, h.signer.Verifier, 1) }
	if err := seal(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, name(0, ".rows.zst")))
	if err != nil {
		t.Fatal(err)
	}
	h.write(t, 5) // a later checkpoint
	removeFile(t, filepath.Join(dir, name(0, ".json")))
	write(t, filepath.Join(dir, name(0, ".rows.zst.123.new")), []byte("half"))
	if err := seal(); err != nil {
		t.Errorf("without its manifest: %v", err)
	}
	removeFile(t, filepath.Join(dir, name(0, ".json")))
	removeFile(t, filepath.Join(dir, name(0, ".rows.zst")))
	if err := seal(); err != nil {
		t.Errorf("with its checkpoint only: %v", err)
	}
	if _, err := archive.Verify(t.Context(), a, h.signer.Verifier); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.new")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if after, err := os.ReadFile(filepath.Join(dir, name(0, ".rows.zst"))); err != nil || !bytes.Equal(before, after) {
		t.Error("the same rows are not the same object")
	}

	inABucket(t, h)

	removeFile(t, filepath.Join(dir, name(0, ".json")))
	rows := filepath.Join(dir, name(0, ".rows.zst"))
	flip(t, rows)
	changed, err := os.ReadFile(rows)
	if err != nil {
		t.Fatal(err)
	}
	if err := seal(); !errors.Is(err, archive.ErrDamaged) {
		t.Errorf("an object with other bytes is there: %v", err)
	}
	if now, err := os.ReadFile(rows); err != nil || !bytes.Equal(now, changed) {
		t.Error("it was overwritten")
	}
}

// looked is a store that returns an earlier tree for the first reads.
type looked struct {
	*sqlstore.Store
	earlier audit.TreeHead
	times   int
}

func (l *looked) AuditTree(ctx context.Context) (audit.TreeHead, error) {
	if l.times--; l.times >= 0 {
		return l.earlier, nil
	}
	return l.Store.AuditTree(ctx)
}

// TestAnotherReplicaHasGoneOn checks that a checkpoint with more rows than this replica has seen does not count as
// damage, unless these rows do not exist.
func TestAnotherReplicaHasGoneOn(t *testing.T) {
	h := newHouse(t, sqlstore.Config{Dir: t.TempDir()})
	h.write(t, archive.Rows+5)
	earlier, err := h.AuditTree(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.write(t, 1)
	dir := filepath.Join(t.TempDir(), "archive")
	a := open(t, dir)
	if err := a.Seal(t.Context(), h.Store, h.signer.Verifier, 1); err != nil {
		t.Fatal(err)
	}
	removeFile(t, filepath.Join(dir, name(0, ".json"))) // the other replica has not written the manifest yet
	if err := a.Seal(t.Context(), &looked{h.Store, earlier, 99}, h.signer.Verifier, 1); !errors.Is(err, archive.ErrDamaged) {
		t.Errorf("a checkpoint of rows that there are not: %v", err)
	}
	if err := a.Seal(t.Context(), &looked{h.Store, earlier, 1}, h.signer.Verifier, 1); err != nil {
		t.Errorf("another replica has gone on by a row: %v", err)
	}
}

// inABucket runs the same checks with a bucket instead of a directory.
func inABucket(t *testing.T, h *house) {
	t.Helper()
	bucket := memblob.OpenBucket(nil)
	a := archive.In(bucket)
	seal := func() error { return a.Seal(t.Context(), h.Store, h.signer.Verifier, 1) }
	for _, gone := range []string{"", ".json", ".rows.zst", ".checkpoint"} {
		if gone != "" {
			if err := errors.Join(bucket.Delete(t.Context(), name(0, gone)), bucket.Delete(t.Context(), name(0, ".json"))); gone != ".json" && err != nil {
				t.Fatal(err)
			}
		}
		if err := seal(); err != nil {
			t.Errorf("without %q: %v", gone, err)
		}
	}
	if _, err := archive.Verify(t.Context(), a, h.signer.Verifier); err != nil {
		t.Error(err)
	}
	if err := errors.Join(bucket.Delete(t.Context(), name(0, ".json")), bucket.WriteAll(t.Context(), name(0, ".rows.zst"), []byte("others"), nil)); err != nil {
		t.Fatal(err)
	}
	if err := seal(); !errors.Is(err, archive.ErrDamaged) {
		t.Errorf("an object with other bytes is there: %v", err)
	}
	if now, err := bucket.ReadAll(t.Context(), name(0, ".rows.zst")); err != nil || string(now) != "others" {
		t.Error("it was overwritten")
	}
}

func TestURLs(t *testing.T) {
	for _, bad := range []string{"", "/var/archive", "file://archive", "file:archive", "file:///a?base_url=x", "http://a/b", "s3://", "ftp://a", "s3:%zz?secret"} {
		if err := blobstore.CheckURL(bad); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, good := range []string{"file:///a", "file:///a?create_dir=true", "s3://b?region=eu-1&prefix=a/", "gs://b", "azblob://c"} {
		if err := blobstore.CheckURL(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	if _, err := archive.Open(t.Context(), "file://"+filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a directory that is not there is opened")
	}
}

func private(t *testing.T, dir string) {
	t.Helper()
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 6 {
		t.Fatalf("%v, %v", entries, err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
		}
	}
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func flip(t *testing.T, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 4
	write(t, path, content)
}

func cut(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()/2); err != nil {
		t.Fatal(err)
	}
}

func removeFile(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, dir string, n int) {
	t.Helper()
	for _, suffix := range []string{".json", ".rows.zst", ".checkpoint"} {
		removeFile(t, filepath.Join(dir, name(n, suffix)))
	}
}

func exchange(t *testing.T, from, to string, n int) {
	t.Helper()
	for _, suffix := range []string{".json", ".rows.zst", ".checkpoint"} {
		content, err := os.ReadFile(filepath.Join(from, name(n, suffix)))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(to, name(n, suffix)), content)
	}
}

// rewrite changes or removes a row of a segment. It updates everything that needs no key: the compression, size and sum
// in the manifest, and the row's own hash.
func rewrite(t *testing.T, dir string, n, at int, with []byte) {
	t.Helper()
	path := filepath.Join(dir, name(n, ".rows.zst"))
	packed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	z, err := zstd.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for i := 0; len(plain) > 0; i++ {
		length := 2 + int(plain[0])<<8 + int(plain[1])
		row := plain[:length]
		plain = plain[length:]
		if i == at && with != nil {
			continue
		}
		if i == at {
			e, err := audit.Decode(row[2:])
			if err != nil {
				t.Fatal(err)
			}
			e.Address = "192.0.2.9"
			row = tree.Bundle([]keyserver.AuditEntry{e})
		}
		out = append(out, row...)
	}
	w, err := zstd.NewWriter(nil, zstd.WithWindowSize(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	packed = w.EncodeAll(out, nil)
	write(t, path, packed)
	amend(t, dir, n, func(m *archive.Manifest) { m.Size, m.SHA256 = int64(len(packed)), sum(packed) })
}

func amend(t *testing.T, dir string, n int, change func(*archive.Manifest)) {
	t.Helper()
	manifest := filepath.Join(dir, name(n, ".json"))
	content, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	var m archive.Manifest
	if err := json.Unmarshal(content, &m); err != nil {
		t.Fatal(err)
	}
	change(&m)
	if content, err = json.Marshal(m); err != nil {
		t.Fatal(err)
	}
	write(t, manifest, content)
}

func bothDatabases(t *testing.T, test func(t *testing.T, cfg sqlstore.Config)) {
	t.Run("sqlite", func(t *testing.T) { test(t, sqlstore.Config{Dir: t.TempDir()}) })
	t.Run("postgres", func(t *testing.T) { test(t, sqlstore.Config{URL: migrated.Database(t)}) })
}

var errArchived = fault.New(fault.Archived, "")

func sum(content []byte) string {
	hash := sha256.Sum256(content)
	return hex.EncodeToString(hash[:])
}

func noted(head audit.TreeHead) []tree.Noted { return []tree.Noted{{Name: "noted", Head: head}} }
