package supportbundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
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
		"2026-01-01T00:00:00Z S3cret\n2026-01-01T00:00:01Z abcdefgh\n2026-01-01T00:00:02Z -----END EC PRIVATE KEY-----\n",
		`password: S3cret`, `password = S3cret`, `token:S3cret`, `session_id: S3cret`, `sessionId=S3cret`, `(password=S3cret)`, `"PGPASSWORD=S3cret"`,
		`dsn "password=S3cret"`, `dsn \"password=S3cret sslmode=x\"`, `--password S3cret`, `--ldap-bind-password S3cret`, `"--password","S3cret"`, `pwd=S3cret`, `passphrase="S3cret"`,
		"  password: a passphrase with S3cret", "- token: S3cret",
		`{"passwords":{"admin":"S3cret"}}`, `{"token":["S3cret"]}`, `<password>S3cret</password>`, `the password is S3cret`, `password S3cret`,
		`AWS_SECRET_ACCESS_KEY=S3cret`, `AccountKey=S3cret;EndpointSuffix=x`, `https://x.example/c?sv=1&sig=S3cret`, `X-Amz-Signature=S3cret`, `X-Api-Key: S3cret`,
		`Authorization: Token S3cret`, `Authorization: Digest username="u", response="S3cret"`, `{"msg":"Authorization: Digest username=\"u\", response=\"S3cret\""}`,
		`Authorization: Negotiate S3cret`, `Cookie: theme=dark1234; session=S3cret`, `"Cookie":"theme=dark1234; session=S3cret"`,
		`postgres://u:a@S3cret@db/`, `postgres://u:a/S3cret@db`, `app-password=S3cret.log`, `api_key => 'S3cret'`,
		`{"password":"a man's S3cret"}`, `{"password":"a \"quoted\" S3cret"}`, `password='a "quoted" S3cret'`, `{\"password\":\"a man's S3cret\"}`,
		"2026-01-01T00:00:00.5Z password: a passphrase with S3cret", "password: |\n  a passphrase\n  with S3cret\n", "key:\n  token: >-\n    a\n    S3cret",
		"2026-01-01T00:00:00Z passphrase: |\n2026-01-01T00:00:00Z   with S3cret\n",
		"-----BEGIN PGP PRIVATE KEY BLOCK-----\nS3cret\n-----END PGP PRIVATE KEY BLOCK-----",
		"a\n-----END PRIVATE KEY-----\nS3cret\n-----END PRIVATE KEY-----\n", "S3cret\n" + strings.Repeat("time=2026-01-01T00:00:00Z level=INFO msg="+strings.Repeat("x", 64)+"\n", 120) + "-----END RSA PRIVATE KEY-----",
		"AGE-SECRET-KEY-1S3CRET", "cookie: sid=S3cret-abcdefgh", "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJTM2NyZXQifQ.S3cret-abcdefgh",
	} {
		out, n := crossOut(t, line)
		if n == 0 || strings.Contains(strings.ToUpper(out), "S3CRET") {
			t.Errorf("of %q is left %q", line, out)
		}
	}
	of := func(kind string) string {
		return base64.StdEncoding.EncodeToString([]byte("-----BEGIN " + kind + "-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg\n"))
	}
	for _, line := range []string{"client-key-data: " + of("EC PRIVATE KEY"), `"tls.key":"` + of("PRIVATE KEY") + `"`} {
		if out, n := crossOut(t, line); n == 0 || strings.Contains(out, "QgSU0") || strings.Contains(out, "LS0t") {
			t.Errorf("of %q is left %q", line, out)
		}
	}
	for _, line := range []string{
		"certificate-authority-data: " + of("CERTIFICATE"), "2026-01-01T00:00:00Z the next password is drawn at the start",
		`{"level":"INFO","msg":"started","url":"https://127.0.0.1:8443","database":"embedded database in /data"}`,
		`{"requestId":"0123456789abcdef","session":"00000000000000ff","code":"INVALID_CREDENTIALS"}`,
		`keyserver_logins_total{method="password",outcome="OK"} 3`, `the password of "admin" is in /data/bootstrap-password`,
		`keyserver_http_requests_total{route="/api/sessions",method="POST",code="OK"} 1`,
		`{"passwordFile":"/run/secrets/admin","requireProof":"all","tokenReview":true}`, `--password-file /run/secrets/admin --token-issuer https://issuer.example`,
		`the token of a service account was refused: its audience is another`, `"requireToken": false, "secret": null`,
		`sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08`,
	} {
		if out, n := crossOut(t, line); n > 0 {
			t.Errorf("%q, which has no secret, became %q", line, out)
		}
	}
}

// line is a line of a log of ours that says n.
func line(n int) string {
	return fmt.Sprintf(`{"time":"2026-11-25T21:57:38Z","level":"INFO","msg":"%d"}`, n) + "\n"
}

// TestABundleHasTheEndsOfLogs, says what it lacks, and names no file of the machine.
func TestABundleHasTheEndsOfLogs(t *testing.T) {
	dir := t.TempDir()
	long, short := filepath.Join(dir, "long.log"), filepath.Join(dir, "short.log")
	for path, text := range map[string]string{long: line(1) + strings.Repeat(line(2), maxFile/len(line(2))) + line(3), short: line(4)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pipe := filepath.Join(dir, "pipe") // nobody writes to it
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

// TestALineThatIsCutThroughIsLeftOut, also if what is left of it looks whole.
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

// TestNoNameLeadsOutOfABundle, be it as bad as the API server that gives it, and each file has its own.
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

// TestABundleEndsWithItsContext: one without what was left out is not taken for whole.
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

// TestAReadThatDoesNotEnd, as of /proc/kmsg, is given up: when it has its time, and when the
// program is told to end.
func TestAReadThatDoesNotEnd(t *testing.T) {
	block := make(chan struct{})
	defer close(block)
	never := func() ([]byte, error) { <-block; return nil, nil }
	if _, err := within(t.Context(), time.Millisecond, never); err == nil || err.Error() != "it could not be read within 1ms" {
		t.Errorf("it is answered %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := within(ctx, time.Hour, never); !errors.Is(err, context.Canceled) {
		t.Errorf("at the end it is answered %v", err)
	}
}
