package sqlstore_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// TestDirectoryRefused checks that each error is one sentence that names the
// directory, and that the directory is unchanged.
func TestDirectoryRefused(t *testing.T) {
	write := func(content string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "keyserver.db"), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	cases := map[string]struct {
		reason  string
		prepare func(*testing.T, string)
		want    error
	}{
		"Text":  {"a file that is no database", write("something else, and long enough to be a header" + strings.Repeat(".", 100)), sqlstore.ErrForeign},
		"Short": {"a file too short for one", write("SQLite"), sqlstore.ErrForeign},
		"Empty": {"an empty file, which SQLite would take for a new database", write(""), sqlstore.ErrForeign},
		"Pipe": {"a pipe, which must not hold the start up", func(t *testing.T, dir string) {
			if err := syscall.Mkfifo(filepath.Join(dir, "keyserver.db"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, sqlstore.ErrForeign},
		"Link": {"a link, which may lead anywhere", func(t *testing.T, dir string) {
			if err := os.Symlink("elsewhere", filepath.Join(dir, "keyserver.db")); err != nil {
				t.Fatal(err)
			}
		}, sqlstore.ErrUnusable},
		"Directory": {"a directory in place of the file", func(t *testing.T, dir string) {
			if err := os.Mkdir(filepath.Join(dir, "keyserver.db"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, sqlstore.ErrUnusable},
		"Newer": {"a newer version, told from the file alone", func(t *testing.T, dir string) {
			d := database{config: sqlstore.Config{Dir: dir}, driver: "sqlite", source: filepath.Join(dir, "keyserver.db")}
			closeStore(t, d.open(t))
			d.tamper(t, `UPDATE schema_floor SET floor = 998`)
			f, err := os.OpenFile(filepath.Join(dir, "keyserver.db"), os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt(binary.BigEndian.AppendUint32(nil, 999), 60); err != nil {
				t.Fatal(err)
			}
		}, sqlstore.ErrNewerVersion},
		"OtherProgram": {"a database with another application id", func(t *testing.T, dir string) {
			d := database{config: sqlstore.Config{Dir: dir}}
			closeStore(t, d.open(t))
			f, err := os.OpenFile(filepath.Join(dir, "keyserver.db"), os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt([]byte{1}, 68); err != nil {
				t.Fatal(err)
			}
		}, sqlstore.ErrForeign},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			tc.prepare(t, dir)
			before := filesOf(t, dir)
			_, err := sqlstore.Open(t.Context(), sqlstore.Config{Dir: dir})
			if !errors.Is(err, tc.want) {
				t.Fatalf("%s: got %v, want %v", tc.reason, err, tc.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("not one sentence: %s", err)
			}
			if diff := cmp.Diff(before, filesOf(t, dir)); diff != "" {
				t.Errorf("%s: the directory changed: %s", tc.reason, diff)
			}
		})
	}
	t.Run("InUse", func(t *testing.T) {
		d := inDirectory(t)
		s := d.open(t)
		defer closeStore(t, s)
		if _, err := sqlstore.Open(t.Context(), d.config); !errors.Is(err, sqlstore.ErrInUse) {
			t.Errorf("a directory has one owner: %v", err)
		}
		if err := s.Ping(t.Context()); err != nil {
			t.Errorf("who keeps it: %v", err)
		}
	})
	t.Run("NotADirectory", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{file, filepath.Join(file, "below"), filepath.Join(t.TempDir(), "missing", "below")} {
			if _, err := sqlstore.Open(t.Context(), sqlstore.Config{Dir: dir}); !errors.Is(err, sqlstore.ErrUnusable) {
				t.Errorf("%s: %v", dir, err)
			}
		}
	})
	t.Run("BothOrNeither", func(t *testing.T) {
		for _, c := range []sqlstore.Config{{}, {Dir: t.TempDir(), URL: "postgres://x"}} {
			if _, err := sqlstore.Open(t.Context(), c); err == nil {
				t.Error("a store is in one place")
			}
		}
	})
}

func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		content := []byte{}
		if info.Mode().IsRegular() {
			if content, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		files[entry.Name()] = fmt.Sprintln(info.Mode(), info.Size(), info.ModTime(), string(content))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestFilesArePrivate(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	dir := filepath.Join(t.TempDir(), "data")
	s := database{config: sqlstore.Config{Dir: dir}}.open(t)
	defer closeStore(t, s)
	update(t, s, insertRole(role(1, "a")))
	modes := map[string]fs.FileMode{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		modes[entry.Name()] = info.Mode().Perm()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]fs.FileMode{"data": 0o700, "keyserver.db": 0o600, "keyserver.db-wal": 0o600, "keyserver.db-shm": 0o600}
	if diff := cmp.Diff(want, modes); diff != "" {
		t.Error(diff)
	}
}

// TestVersionInTheFile checks that every migration writes its number into the
// header of the file, which can be read without opening the database.
func TestVersionInTheFile(t *testing.T) {
	d := inDirectory(t)
	closeStore(t, d.open(t))
	db, err := sql.Open(d.driver, d.source)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var inFile, inTable int
	err = errors.Join(db.QueryRowContext(t.Context(), `PRAGMA user_version`).Scan(&inFile),
		db.QueryRowContext(t.Context(), `SELECT max(version_id) FROM keyserver_schema`).Scan(&inTable))
	if err != nil || inFile != inTable {
		t.Errorf("user_version is %d, the last migration is %d, %v", inFile, inTable, err)
	}
}

// TestDiesWhileCreating checks that the next start ignores the files of a first
// start that was killed.
func TestDiesWhileCreating(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"keyserver.db.new", "keyserver.db.new-wal", "keyserver.db.new-shm"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, database{config: sqlstore.Config{Dir: dir}}.open(t))
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("one file is left after a clean end: %v, %v", entries, err)
	}
}

// victimDir is an environment variable. If it is set, this test binary is the
// process that TestKilled kills.
const victimDir = "SQLSTORE_TEST_VICTIM"

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimDir); dir != "" {
		victim := beVictim
		if at := os.Getenv(victimMigration); at != "" {
			victim = func(place string) error { return dieMigrating(place, at) }
		}
		if death := os.Getenv(victimDeath); death != "" {
			victim = func(dir string) error { return die(death, dir) }
		}
		fmt.Fprintln(os.Stderr, victim(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// beVictim writes roles and audit rows, and prints each one after it was
// acknowledged, until it is killed.
func beVictim(dir string) error {
	ctx := context.Background()
	s, err := sqlstore.Open(ctx, sqlstore.Config{Dir: dir})
	if err != nil {
		return err
	}
	key, err := rowmac.Derive(make([]byte, 32))
	if err != nil {
		return err
	}
	s.UseRowKey(key)
	w, err := audit.NewWriter(ctx, s, audit.Options{})
	if err != nil {
		return err
	}
	head, err := s.ChangeHead(ctx)
	if err != nil {
		return err
	}
	var out sync.Mutex
	var rows atomic.Int64
	for range 8 {
		go func() {
			for w.Write(ctx, usedRow()) == nil {
				out.Lock()
				fmt.Println("audit", rows.Add(1))
				out.Unlock()
			}
		}()
	}
	for n := uint64(head) + 1; ; n++ {
		if err := s.Update(ctx, func(tx *sqlstore.Tx) error { return tx.InsertRole(ctx, role(n, fmt.Sprint("role ", n))) }); err != nil {
			return err
		}
		out.Lock()
		fmt.Println("role", n)
		out.Unlock()
	}
}

var kills = flag.Int("kills", 4, "how often TestKilled kills a process")

// TestKilled repeatedly kills a process that writes, and checks that every
// acknowledged write is there.
func TestKilled(t *testing.T) {
	d := inDirectory(t)
	audited := int64(0)
	for round := range *kills {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), victimDir+"="+d.config.Dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		acknowledged := map[string]int64{}
		scanner := bufio.NewScanner(out)
		killed := false
		for scanner.Scan() {
			what, number, _ := strings.Cut(scanner.Text(), " ")
			n, err := strconv.ParseInt(number, 10, 64)
			if err != nil {
				break // the line that it was printing
			}
			acknowledged[what] = max(acknowledged[what], n)
			if !killed && acknowledged["role"] > 0 && acknowledged["audit"] >= int64(50+100*(round%4)) {
				killed = true
				time.AfterFunc(rand.N(20*time.Millisecond), func() { _ = cmd.Process.Kill() })
			}
		}
		_ = cmd.Wait()
		if acknowledged["role"] == 0 {
			t.Fatal("the process wrote nothing")
		}
		audited += acknowledged["audit"]

		s := d.open(t)
		if head, err := s.ChangeHead(t.Context()); err != nil || head < acknowledged["role"] {
			t.Errorf("round %d: role %d was acknowledged, %d are there, %v", round, acknowledged["role"], head, err)
		}
		snapshot, err := s.AuditSnapshot(t.Context())
		if err != nil || snapshot.LastSeq < audited {
			t.Errorf("round %d: %d rows were acknowledged: %+v, %v", round, audited, snapshot, err)
		}
		if round%50 == 0 || round == *kills-1 {
			if report := verify(t, s); !report.Intact() || report.Rows < audited {
				t.Errorf("round %d: %d rows were acknowledged: %+v", round, audited, report)
			}
		}
		uses, err := s.KeyUses(t.Context(), ids(1))
		if err != nil || uses[id(1)].Uses != snapshot.LastSeq {
			t.Errorf("round %d: of %d uses: %+v, %v", round, snapshot.LastSeq, uses, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
