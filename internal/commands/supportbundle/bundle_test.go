package supportbundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// line returns a log line of this project's programs with the message n.
func line(n int) string {
	return fmt.Sprintf(`{"time":"2026-11-25T21:57:38Z","level":"INFO","msg":"%d"}`, n) + "\n"
}

// TestABundleHasTheEndsOfLogs checks that files.json lists missing files, and that only regular files are read.
func TestABundleHasTheEndsOfLogs(t *testing.T) {
	dir := t.TempDir()
	long, short := filepath.Join(dir, "long.log"), filepath.Join(dir, "short.log")
	for path, text := range map[string]string{long: line(1) + strings.Repeat(line(2), maxFile/len(line(2))) + line(3), short: line(4)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pipe := filepath.Join(dir, "pipe") // a pipe without a writer
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w := New(t.Context(), &packed, time.Unix(1_700_000_000, 0))
	for _, err := range []error{w.Tail("logs/long", long), w.Tail("logs/short", short), w.Tail("logs/none", filepath.Join(dir, "none")), w.Tail("logs/dir", dir), w.Tail("logs/pipe", pipe), w.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	files := rig.Unpacked(t, packed.Bytes())
	if text := files["support-bundle/logs/long"].Text; len(text) > maxFile || !strings.HasPrefix(text, line(2)) || !strings.HasSuffix(text, line(2)+line(3)) {
		t.Errorf("of the long log are %d bytes", len(text))
	}
	if text := files["support-bundle/logs/short"].Text; text != line(4) {
		t.Errorf("of the short log is %q", text)
	}
	var listed []Listed
	if err := json.Unmarshal([]byte(files["support-bundle/files.json"].Text), &listed); err != nil {
		t.Fatal(err)
	}
	missing := 0
	for _, l := range listed {
		if l.Error != "" {
			missing++
		}
		if l.Cut != (l.Name == "logs/long") {
			t.Errorf("%s is cut: %v", l.Name, l.Cut)
		}
	}
	if len(listed) != 5 || missing != 3 || files["support-bundle/logs/dir"].Text != "" {
		t.Errorf("files.json lists %+v", listed)
	}
}

// TestALineThatIsCutThroughIsLeftOut checks that a cut line is omitted, even if its end looks like a complete line.
func TestALineThatIsCutThroughIsLeftOut(t *testing.T) {
	text := strings.Repeat(" ", maxFile-len(line(1))-len(line(2))) + line(1) + line(2)
	files := packedBy(t, func(w *Writer) error { return w.Log("log", []byte("cut "+text), nil) })
	if got := files["log"]; got != line(2) {
		t.Errorf("%d bytes are left, which begin with %.80q", len(got), got)
	}
}

func TestABundleIsBounded(t *testing.T) {
	w := New(t.Context(), io.Discard, time.Time{})
	for range maxFiles {
		if err := w.Log("x", nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Log("x", nil, nil); !errors.Is(err, ErrFull) {
		t.Errorf("one file more is answered %v", err)
	}
}

// TestNoNameLeadsOutOfABundle checks that names from a malicious API server are unique paths inside the bundle.
func TestNoNameLeadsOutOfABundle(t *testing.T) {
	names := []string{
		"../x", "../../x", "/x", "x/../../y", "x/./y", "x//y", "x/", "", ".", "..", "a\x1b[31m\nb", `..\x`, "x\u202ey", "C:x", "x\x00",
		"x", "x", "X", "x~2", "files.json", "Files.JSON", strings.Repeat("a", 300) + ".log", strings.Repeat("/", 300),
	}
	var packed bytes.Buffer
	w := New(t.Context(), &packed, time.Time{})
	for _, l := range []log{{"..", "/../../../etc/x", false}, {"a.b", "c", false}, {"a", "b.c", false}, {"a", "b", true}, {"a", "b.previous", false}, {"a/b", "c", false}, {"a/b/c", "d", false}} {
		names = append(names, l.name(w.without))
	}
	for _, name := range names {
		if err := errors.Join(w.Log(name, nil, nil), w.Missing(name, errors.New("it is not there"))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	zip, err := gzip.NewReader(&packed)
	if err != nil {
		t.Fatal(err)
	}
	members := map[string]bool{}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		inside, ok := strings.CutPrefix(h.Name, "support-bundle/")
		if !ok || !fs.ValidPath(inside) || strings.ContainsFunc(inside, func(r rune) bool { return r < ' ' || r > '~' || strings.ContainsRune(`\:*?"<>|`, r) }) {
			t.Errorf("a file is %q", h.Name)
		}
		for part := range strings.SplitSeq(inside, "/") {
			if len(part) > 255 {
				t.Errorf("no disk takes %q", part)
			}
		}
		if lower := strings.ToLower(inside); members[lower] {
			t.Errorf("two files are %q", h.Name)
		} else {
			members[lower] = true
		}
	}
	if len(members) != len(names)+1 {
		t.Errorf("of %d files are %d", len(names)+1, len(members))
	}
	listed := map[string]bool{"files.json": true}
	for _, l := range w.Files() {
		if listed[strings.ToLower(l.Name)] || l.Error == "" && !members[strings.ToLower(l.Name)] {
			t.Errorf("%q is listed", l.Name)
		}
		listed[strings.ToLower(l.Name)] = true
	}
}

// TestABundleEndsWithItsContext checks that a cancelled bundle returns errors, because it is incomplete.
func TestABundleEndsWithItsContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	w := New(ctx, io.Discard, time.Time{})
	if err := w.Log("before", nil, nil); err != nil {
		t.Fatal(err)
	}
	stop()
	for what, err := range map[string]error{"a file": w.Log("x", nil, nil), "a note": w.Missing("x", io.EOF), "its end": w.Close(), "a file of the machine": w.Tail("x", "bundle.go")} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s is answered %v", what, err)
		}
	}
	if n := len(w.Files()); n != 1 {
		t.Errorf("it lists %d files", n)
	}
}

// TestAReadThatDoesNotEnd checks that a blocking read, as of /proc/kmsg, ends at its time limit or when the context is
// cancelled.
func TestAReadThatDoesNotEnd(t *testing.T) {
	block := make(chan struct{})
	defer close(block)
	never := func() ([]byte, error) { <-block; return nil, nil }
	if _, err := within(t.Context(), time.Millisecond, never); err == nil || err.Error() != "the file could not be read within 1ms" {
		t.Errorf("it is answered %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := within(ctx, time.Hour, never); !errors.Is(err, context.Canceled) {
		t.Errorf("at the end it is answered %v", err)
	}
}
