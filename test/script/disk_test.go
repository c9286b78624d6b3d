package script

import (
	"crypto/sha256"
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
	_ "modernc.org/sqlite" // the SQL driver
)

// remembered is the key for the results of remember in the values of a script.
type remembered struct{}

// remember PATH records the state of all files under a path. The path may be missing.
func remember(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1, "remember PATH")
	state, err := fingerprint(ts.MkAbs(args[0]))
	ts.Check(err)
	noted(ts)[args[0]] = state
}

// same PATH fails unless all files under a path have the state that remember recorded.
func same(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1, "same PATH")
	state, err := fingerprint(ts.MkAbs(args[0]))
	ts.Check(err)
	want, ok := noted(ts)[args[0]]
	if !ok {
		ts.Fatalf("%s was not remembered", args[0])
	}
	if state != want {
		ts.Fatalf("%s has changed; before:\n%safter:\n%s", args[0], want, state)
	}
}

// untouched PATH CODE PATTERN COMMAND... runs a command that must fail, as refused does, and must
// not change a path. Background processes are suspended, because they may write there at any time.
func untouched(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) > 3, "untouched PATH CODE PATTERN COMMAND...")
	for _, c := range ts.BackgroundCmds() {
		defer suspend(ts, c.Process)()
	}
	remember(ts, false, args[:1])
	refused(ts, false, args[1:])
	same(ts, false, args[:1])
}

// suspend stops a child process, and waits until all its threads have stopped.
func suspend(ts *testscript.TestScript, child *os.Process) (resume func()) {
	ts.Check(child.Signal(syscall.SIGSTOP))
	err := stopped(child.Pid)
	resume = func() { _ = child.Signal(syscall.SIGCONT) }
	if err != nil {
		resume()
		ts.Fatalf("cannot wait until process %d has stopped: %v", child.Pid, err)
	}
	return resume
}

func noted(ts *testscript.TestScript) map[string]string {
	m, ok := ts.Value(remembered{}).(map[string]string)
	if !ok {
		panic("setup makes the map")
	}
	return m
}

// fingerprint returns a line for each file and directory: its name, mode and the hash of its content.
func fingerprint(root string) (string, error) {
	var b strings.Builder
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		content := ""
		switch {
		case strings.HasSuffix(name, "-shm"):
			// This is shared memory of SQLite's processes. A check whether the database accepts writes leaves a lock
			// there, and does not change the database.
			content = "shared memory"
		case info.Mode().IsRegular():
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = fmt.Sprintf("%d bytes %x", len(raw), sha256.Sum256(raw))
		}
		fmt.Fprintf(&b, "%s %s %s\n", name, info.Mode(), content)
		return nil
	})
	if os.IsNotExist(err) {
		return "nothing\n", nil
	}
	return b.String(), err
}

// sql FILE STATEMENT runs a statement on a database that no server has open. Afterwards, the single file contains all
// data.
func runSQL(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "sql FILE STATEMENT")
	db, err := sql.Open("sqlite", ts.MkAbs(args[0]))
	ts.Check(err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	result, err := db.Exec(args[1])
	ts.Check(err)
	hit, err := result.RowsAffected()
	ts.Check(err)
	_, err = db.Exec(`PRAGMA wal_checkpoint(TRUNCATE)`)
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%d rows\n", hit)
}

// withoutPrivileges replaces this process with a command to which file modes apply, even if the user is root.
func withoutPrivileges(args []string) int {
	runtime.LockOSThread() // capabilities belong to a thread, and exec continues this one
	if os.Getuid() == 0 {
		if err := obeyModes(); err != nil {
			fmt.Fprintln(os.Stderr, "drop a capability:", err)
			return 126
		}
	}
	path, err := exec.LookPath(args[0])
	if err == nil {
		err = syscall.Exec(path, args, os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	return 127
}
