package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func unpack(t *testing.T, packed []byte) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(text)
	}
}

// TestWhatLooksLikeASecretIsCrossedOut in whatever spelling a careless line may have it.
func TestWhatLooksLikeASecretIsCrossedOut(t *testing.T) {
	for _, line := range []string{
		`Authorization: Bearer S3cret-abcdefgh`,
		`{"headers":{"Authorization":["DPoP S3cret-abcdefgh"]}}`,
		`{"password":"S3cret-abcdefgh"}`, `{\"password\":\"S3cret-abcdefgh\"}`,
		`{"token": "S3cret-abcdefgh", "x": 1}`, `{"sessionId":"S3cret-abcdefgh"}`, `{"material":"S3cret-abcdefgh"}`,
		`postgres://keyserver:S3cret-abcdefgh@db.example/keys`, `"url":"postgres://S3cret-abcdefgh@db/keys"`,
		`--kek base64key://S3cret-abcdefgh`, `PGPASSWORD=S3cret-abcdefgh psql`, `GET /x?token=S3cret-abcdefgh&y=1`,
		"-----BEGIN EC PRIVATE KEY-----\nS3cret-abcdefgh\n-----END EC PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\nS3cret-abcdefgh",
		"S3cret\nabcdefgh\n-----END EC PRIVATE KEY-----\n",
		"AGE-SECRET-KEY-1S3CRET", "cookie: sid=S3cret-abcdefgh", "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJTM2NyZXQifQ.S3cret-abcdefgh",
	} {
		out, n := CrossOut([]byte(line))
		if n == 0 || strings.Contains(strings.ToUpper(string(out)), "S3CRET") {
			t.Errorf("of %q is left %q", line, out)
		}
	}
	for _, line := range []string{
		`{"level":"INFO","msg":"started","url":"https://127.0.0.1:8443","database":"embedded database in /data"}`,
		`{"requestId":"0123456789abcdef","session":"00000000000000ff","code":"INVALID_CREDENTIALS"}`,
		`keyserver_logins_total{method="password",outcome="OK"} 3`, `the password of "admin" is in /data/bootstrap-password`,
		`keyserver_http_requests_total{route="/api/sessions",method="POST",code="OK"} 1`,
	} {
		if out, n := CrossOut([]byte(line)); n > 0 {
			t.Errorf("%q, which has no secret, became %q", line, out)
		}
	}
}

// TestABundleHasTheEndsOfLogs, says what it lacks, and names no file of the machine.
func TestABundleHasTheEndsOfLogs(t *testing.T) {
	dir := t.TempDir()
	long, short := filepath.Join(dir, "long.log"), filepath.Join(dir, "short.log")
	line := strings.Repeat("x", 1023) + "\n"
	for path, text := range map[string]string{long: "first\n" + strings.Repeat(line, maxFile/1024) + "last\n", short: "all of it\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var packed bytes.Buffer
	w := New(&packed, time.Unix(1_700_000_000, 0))
	for _, err := range []error{w.Tail("logs/long", long), w.Tail("logs/short", short), w.Tail("logs/none", filepath.Join(dir, "none")), w.Tail("logs/dir", dir), w.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	files := unpack(t, packed.Bytes())
	if text := files["support-bundle/logs/long"]; len(text) > maxFile || !strings.HasPrefix(text, "xxx") || !strings.HasSuffix(text, "last\n") {
		t.Errorf("of the long log are %d bytes", len(text))
	}
	if text := files["support-bundle/logs/short"]; text != "all of it\n" {
		t.Errorf("of the short log is %q", text)
	}
	var listed []Listed
	if err := json.Unmarshal([]byte(files["support-bundle/files.json"]), &listed); err != nil {
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
	if len(listed) != 4 || missing != 2 || files["support-bundle/logs/dir"] != "" {
		t.Errorf("files.json lists %+v", listed)
	}
}

func TestABundleIsBounded(t *testing.T) {
	w := New(io.Discard, time.Time{})
	for range maxFiles {
		if err := w.Text("x", nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Text("x", nil); !errors.Is(err, ErrFull) {
		t.Errorf("one file more is answered %v", err)
	}
}
