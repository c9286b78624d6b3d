package supportbundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// put writes a file below a directory, and answers its path.
func put(t *testing.T, text string, path ...string) string {
	t.Helper()
	file := filepath.Join(path...)
	rig.Must(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)))
	return file
}

// TestFilesOfKeysAreNotPacked, by whatever name they are given.
func TestFilesOfKeysAreNotPacked(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "data")
	_, err := keyring.EnsureFileKey(in)
	rig.Must(t, err)
	kek := filepath.Join(in, keyring.KeyFile)
	const password = "obGf2DRdPyXdH-8ikRtoW0zjUU-9n5t8"
	put(t, password+"\n", in, "bootstrap-password")
	put(t, "a log in the data directory\n", in, "serve.log")
	link := func(to, name string) string {
		file := filepath.Join(dir, name)
		rig.Must(t, os.Symlink(to, file))
		return file
	}
	twice := func(of, name string) string {
		file := filepath.Join(dir, name)
		rig.Must(t, os.Link(of, file))
		return file
	}
	files := map[string]string{
		"the key-encryption key": kek, "a link to it": link(kek, "kek.log"), "a link to a link": link(filepath.Join(dir, "kek.log"), "current.log"),
		"by a link to its directory": filepath.Join(link(in, "logs"), keyring.KeyFile), "its second name": twice(kek, "second.log"),
		"the password": link(filepath.Join(in, "bootstrap-password"), "link.log"), "its second name, too": twice(filepath.Join(in, "bootstrap-password"), "b.log"),
		"a log beside them": link(filepath.Join(in, "serve.log"), "serve.log"), "in another case": put(t, "a b c\n", dir, "KEK"),
		"a copy": put(t, password, dir, "copy.log"), "lines": put(t, "admin:"+password+"\r\nops:"+password+"\r\n", dir, "htpasswd.log"), "bytes": put(t, "\xff\xfe\x01secret key 32 bytes", dir, "raw.log"),
		"a key in PEM": put(t, "\n-----BEGIN PRIVATE KEY-----\nMIGH\n-----END PRIVATE KEY-----\n", dir, "pem.log"), "its name": put(t, "a b c\n", dir, "tls.key"),
		"an identity of age": put(t, "# created: 2026-01-01T00:00:00Z\n# public key: age1x\nAGE-SECRET-KEY-1X\n", dir, "age.log"), "of ssh": put(t, "a b c\n", dir, "id_ed25519"),
		"a session of ctl": put(t, `{"server":"https://x","sessionId":"`+password+`"}`, dir, "default.session"), "a database": put(t, "SQLite format 3\x00"+strings.Repeat("x ", 4096), dir, "copy.db.log"),
	}
	for why, file := range files {
		var packed bytes.Buffer
		w := New(t.Context(), &packed, time.Time{})
		rig.Must(t, errors.Join(w.Tail("logs/x", file), w.Close()))
		unpacked := rig.Unpacked(t, packed.Bytes())
		var listed []Listed
		rig.Must(t, json.Unmarshal([]byte(unpacked["support-bundle/files.json"].Text), &listed))
		if len(unpacked) != 1 || len(listed) != 1 || !strings.Contains(listed[0].Error, " is not packed: ") {
			t.Errorf("%s: it has %d files, and lists %+v", why, len(unpacked), listed)
		}
	}
}

// TestLogsArePackedBehindLinks, as the newest of many is found, and however short they are.
func TestLogsArePackedBehindLinks(t *testing.T) {
	dir := t.TempDir()
	log := put(t, "all of it\n", dir, "logs", "2026-01-01.log")
	current, logs := filepath.Join(dir, "logs", "current"), filepath.Join(dir, "log")
	rig.Must(t, errors.Join(os.Symlink(filepath.Base(log), current), os.Symlink("logs", logs)))
	for want, files := range map[string][]string{
		"all of it\n": {log, current, filepath.Join(logs, "current")},
		"":            {put(t, "", dir, "empty.log")}, "x\n": {put(t, "x\n", dir, "x.log")}, `{"msg":"stopped"}`: {put(t, `{"msg":"stopped"}`, dir, "idp.log")},
		"\x00\x00a log that was cut\n": {put(t, "\x00\x00a log that was cut\n", dir, "zero.log")}, strings.Repeat("word\n", 1000): {put(t, strings.Repeat("word\n", 1000), dir, "words.log")},
	} {
		for _, file := range files {
			var packed bytes.Buffer
			w := New(t.Context(), &packed, time.Time{})
			rig.Must(t, errors.Join(w.Tail("log", file), w.Close()))
			if got, there := rig.Unpacked(t, packed.Bytes())["support-bundle/log"]; !there || got.Text != want {
				t.Errorf("of %s is packed %q: %+v", file, got.Text, w.Files())
			}
		}
	}
}
