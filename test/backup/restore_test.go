package backup

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/keyserver-operator/keyserver-operator/internal/store/backup"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// lostServer has what remains of a lost key server.
type lostServer struct {
	backupIdentity
	place, replica string
	kek            []byte
	key            string // of the audit log
}

func newLostServer(t *testing.T) lostServer {
	t.Helper()
	rig.Must(t, program.DependOnSources())
	k := lostServer{backupIdentity: newBackupIdentity(t), place: filepath.Join(t.TempDir(), "backups"), replica: filepath.Join(t.TempDir(), "replica")}
	h := newLoadedServer(t, "", "--replicate-to", k.replica, "--replicate-recipient", k.Recipient().String())
	h.after(t, 100)
	rig.Within(t, time.Minute, "something is replicated", func() bool {
		segments, _ := filepath.Glob(filepath.Join(k.replica, "*-000000002-*"))
		return len(segments) > 0
	})
	out, err := run(t, "backup", "--server", "https://"+h.server.Address, "--ca-file", filepath.Join(h.server.DataDir, "ca.crt"), "--data-dir", h.server.DataDir,
		"--password-file", filepath.Join(h.server.DataDir, "bootstrap-password"), "--recipient", k.Recipient().String(), "--to", k.place, "--include-kek")
	if err != nil {
		t.Fatal(err, out)
	}
	h.rest()
	rig.Must(t, h.server.Stop())
	k.kek, err = os.ReadFile(filepath.Join(h.server.DataDir, "kek"))
	rig.Must(t, err)
	k.key = h.key
	return k
}

func (k lostServer) args(from, dir string, more ...string) []string {
	return append([]string{"restore", "--from", from, "--identity", k.file, "--data-dir", dir}, more...)
}

func missingFile(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// A restore checks the files of a place that others may write to, and reports the result.
func TestRestoreChecksDestinationFiles(t *testing.T) {
	k := newLostServer(t)
	for _, place := range []string{k.place, k.replica} {
		if owner, err := os.ReadFile(filepath.Join(place, backup.OwnerName(1))); err != nil || strings.TrimSpace(string(owner)) != k.key {
			t.Errorf("whose place it is: %q, %v", owner, err)
		}
	}
	t.Run("nobody says whose it is", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "new")
		out, err := run(t, k.args(k.place, dir)...)
		if err != nil || !strings.Contains(out, "The signature was not verified, because --key is missing") || !strings.Contains(out, "was not used") {
			t.Errorf("%v\n%s", err, out)
		}
		if !missingFile(filepath.Join(dir, "kek")) {
			t.Error("the key-encryption key was taken, which nobody has asked for")
		}
	})
	t.Run("with its key", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "new")
		out, err := run(t, k.args(k.place, dir, "--key", k.key, "--include-kek")...)
		if err != nil || !strings.Contains(out, "verified with --key") {
			t.Errorf("%v\n%s", err, out)
		}
		if is, err := os.ReadFile(filepath.Join(dir, "kek")); err != nil || !bytes.Equal(is, k.kek) {
			t.Errorf("another key: %v", err)
		}
	})
	other := newLostServer(t)
	for name, from := range map[string]string{"a backup": k.place, "a replica": k.replica} {
		t.Run(name+" of somebody else", func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "new")
			out, err := run(t, k.args(from, dir, "--key", other.key)...)
			if err == nil || !strings.Contains(out, "the backup was not made by the expected key server") {
				t.Errorf("%v\n%s", err, out)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
	for name, tc := range map[string]struct {
		says string
		args []string
	}{
		"no directory for the KEK": {"--data-dir", []string{"restore", "--from", k.place, "--identity", k.file, "--database-url", "postgres://nowhere/x", "--include-kek"}},
		"no KEK beside a replica":  {"has no key-encryption key next to it", k.args(k.replica, filepath.Join(t.TempDir(), "new"), "--include-kek")},
		"a key that is none":       {"--key", k.args(k.place, filepath.Join(t.TempDir(), "new"), "--key", "nothing")},
	} {
		t.Run(name, func(t *testing.T) {
			if out, err := run(t, tc.args...); err == nil || !strings.Contains(out, tc.says) || strings.Count(out, "\n") != 1 {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// A restore that was killed after it wrote the key-encryption key can be repeated with the same
// command. A different key in the directory is never replaced.
func TestARestoreThatWasKilledWithItsKEK(t *testing.T) {
	k := newLostServer(t)
	for name, tc := range map[string]struct {
		kek  []byte
		says string
	}{"Its": {k.kek, ""}, "Another": {[]byte("another key\n"), "differs from the key"}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range map[string][]byte{sqlite.RestoringFile: []byte("half"), sqlite.RestoringFile + "-wal": nil, "kek": tc.kek} {
				rig.Must(t, os.WriteFile(filepath.Join(dir, file), content, 0o600))
			}
			out, err := run(t, k.args(k.place, dir, "--include-kek")...)
			switch {
			case tc.says == "" && err != nil:
				t.Fatal(err, out)
			case tc.says != "" && (err == nil || !strings.Contains(out, tc.says)):
				t.Errorf("%v\n%s", err, out)
			}
			if is, err := os.ReadFile(filepath.Join(dir, "kek")); err != nil || !bytes.Equal(is, tc.kek) {
				t.Errorf("the key was replaced: %v", err)
			}
		})
	}
}

// endWhen starts a command and sends it a signal as soon as it is half done. It returns the output,
// and false if the command succeeded because it was faster.
func endWhen(t *testing.T, signal syscall.Signal, half func() bool, args ...string) (out string, ended bool) {
	t.Helper()
	p, err := built.Start(args...)
	rig.Must(t, err)
	t.Cleanup(p.Kill)
	for {
		select {
		case <-p.Exited():
			if err := p.Wait(); err != nil {
				t.Fatal(err, p.Log())
			}
			return p.Log(), false
		default:
		}
		if half() {
			rig.Must(t, p.Signal(signal))
			err := p.Wait()
			return p.Log(), err != nil
		}
	}
}

// until starts a restore, ends it while it has an incomplete file, and returns its output. If the
// restore is faster, until tries again.
func (k lostServer) until(t *testing.T, from string, end syscall.Signal, half string) (dir, out string) {
	t.Helper()
	for range 50 {
		dir = filepath.Join(t.TempDir(), "new")
		out, ended := endWhen(t, end, func() bool {
			found, _ := filepath.Glob(filepath.Join(dir, half))
			return len(found) > 0
		}, k.args(from, dir)...)
		if ended {
			return dir, out
		}
	}
	t.Fatal("it is always faster")
	return "", ""
}

// A killed restore from a replica leaves its unencrypted copy in a directory that only its user can
// read. The next run removes it, and no key server starts on the directory.
func TestARestoreThatWasKilledWithItsCopy(t *testing.T) {
	k := newLostServer(t)
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	dir, _ := k.until(t, k.replica, syscall.SIGKILL, sqlite.RestoringFile+"-scratch-*/copy/"+sqlite.DatabaseFile)
	left, err := filepath.Glob(filepath.Join(dir, sqlite.RestoringFile+"-scratch-*"))
	rig.Must(t, err)
	if len(left) != 1 {
		t.Fatalf("left: %v", left)
	}
	if info, err := os.Stat(left[0]); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("others can read it: %v, %v", info.Mode(), err)
	}
	if elsewhere, err := os.ReadDir(temporary); err != nil || len(elsewhere) > 0 {
		t.Errorf("among temporary files: %v, %v", elsewhere, err)
	}
	if out, err := run(t, "serve", "--data-dir", dir, "--listen", "127.0.0.1:0", "--external-listen", ""); err == nil || !strings.Contains(out, "was interrupted; run it again") || !missingFile(filepath.Join(dir, "kek")) {
		t.Errorf("it is served from: %v\n%s", err, out)
	}
	if out, err := run(t, k.args(k.replica, dir, "--key", k.key)...); err != nil {
		t.Fatal(err, out)
	}
	entries, err := os.ReadDir(dir)
	rig.Must(t, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), sqlite.RestoringFile) {
			t.Errorf("%s is still there", e.Name())
		}
	}
}

// An interrupted or failed restore prints one sentence with the remedy.
func TestSentencesOfARestore(t *testing.T) {
	k := newLostServer(t)
	t.Run("a signal", func(t *testing.T) {
		dir, out := k.until(t, k.place, syscall.SIGTERM, sqlite.RestoringFile)
		if !strings.Contains(out, "was interrupted") || !strings.Contains(out, "run it again") || strings.Contains(out, "context") || strings.Count(out, "\n") != 1 {
			t.Error(out)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
	t.Run("a link to nowhere", func(t *testing.T) {
		link := filepath.Join(t.TempDir(), "link")
		rig.Must(t, os.Symlink("/nowhere/at/all", link))
		for _, from := range []string{k.place, k.replica} {
			if out, err := run(t, k.args(from, link)...); err == nil || !strings.Contains(out, "is a link to /nowhere/at/all, which does not exist") || strings.Count(out, "\n") != 1 {
				t.Errorf("%v\n%s", err, out)
			}
		}
	})
	t.Run("no temporary files", func(t *testing.T) {
		url := pgtest.DurableDatabase(t)
		t.Setenv("TMPDIR", "/nowhere/at/all")
		out, err := run(t, "restore", "--from", k.replica, "--identity", k.file, "--database-url", url)
		if err == nil || !strings.Contains(out, "TMPDIR") || !strings.Contains(out, "/nowhere/at/all") || strings.Count(out, "\n") != 1 {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("a directory that is not empty", func(t *testing.T) {
		dir := t.TempDir()
		rig.Must(t, os.WriteFile(filepath.Join(dir, "notes"), nil, 0o600))
		for _, from := range []string{k.place, k.replica} {
			if out, err := run(t, k.args(from, dir)...); err == nil || !strings.Contains(out, "is not empty: it contains notes") || strings.Count(out, "\n") != 1 {
				t.Errorf("%v\n%s", err, out)
			}
		}
	})
	t.Run("somebody else's file as the newest one", func(t *testing.T) {
		place := t.TempDir()
		rig.Must(t, os.CopyFS(place, os.DirFS(k.place)))
		name := backup.Name(1, time.Now().Add(time.Minute))
		rig.Must(t, os.WriteFile(filepath.Join(place, name), []byte("hello"), 0o600))
		out, err := run(t, k.args(place, filepath.Join(t.TempDir(), "new"))...)
		if err == nil || !strings.Contains(out, name) || !strings.Contains(out, "--backup") || strings.Count(out, "\n") != 1 {
			t.Errorf("%v\n%s", err, out)
		}
		rig.Must(t, os.Truncate(filepath.Join(place, name), 0))
		if out, err = run(t, k.args(place, filepath.Join(t.TempDir(), "new"))...); err != nil || !strings.Contains(out, "skipped "+name) {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("another identity", func(t *testing.T) {
		stranger, err := age.GenerateX25519Identity()
		rig.Must(t, err)
		file := filepath.Join(t.TempDir(), "identity")
		rig.Must(t, os.WriteFile(file, []byte(stranger.String()), 0o600))
		out, err := run(t, "restore", "--from", k.replica, "--identity", file, "--data-dir", filepath.Join(t.TempDir(), "new"))
		if err == nil || !strings.Contains(out, "another recipient") || strings.Contains(out, "--at") || strings.Count(out, "\n") != 1 {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
