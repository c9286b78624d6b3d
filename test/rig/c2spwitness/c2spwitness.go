// Package c2spwitness runs the witness of hack/c2sp-witness for tests. Whoever imports it
// needs that, which is how make knows (hack/needs.sh).
package c2spwitness

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// patience only tells a slow machine from a witness that hangs.
const patience = time.Minute

// Start runs a witness of a log until the test ends, and answers it as --witness takes it,
// URL=VKEY.
func Start(t testing.TB, log string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this needs the witness of hack/c2sp-witness")
	}
	program := os.Getenv("RIG_C2SP_WITNESS")
	if program == "" {
		t.Fatal("RIG_C2SP_WITNESS is not set: run the suite by make test PKG=..., which builds the witness of hack/c2sp-witness")
	}
	dependOnSources(t)
	cmd := exec.Command(program, log)
	var said, complaint rig.Output
	cmd.Stdout, cmd.Stderr = &said, &complaint
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	rig.Must(t, cmd.Start())
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // what it said is kept
		close(exited)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it fails only for a process that has ended
		<-exited
	})
	rig.Within(t, patience, "the witness answers", func() bool {
		select {
		case <-exited:
			t.Fatalf("the witness ended: %s", complaint.String())
		default:
		}
		return strings.HasSuffix(said.String(), "\n")
	})
	return strings.TrimSpace(said.String())
}

// dependOnSources makes the result of the running test depend on the sources of the
// witness (see test/program).
func dependOnSources(t testing.TB) {
	t.Helper()
	root, err := rig.Root()
	rig.Must(t, err)
	rig.Must(t, filepath.WalkDir(filepath.Join(root, "hack", "c2sp-witness"), func(_ string, _ fs.DirEntry, err error) error { return err }))
}
