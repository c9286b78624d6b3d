package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// Up is a running "up" process.
type Up struct {
	Dir   string // directory of its state
	Shown string // its output when everything was Ready
	Ended <-chan error

	process *os.Process
}

// Up runs "keyserver-dev up" on a directory and returns when everything is Ready. The process stops when the test ends.
func (p Program) Up(t testing.TB, dir string, args ...string) *Up {
	t.Helper()
	cmd := exec.Command(p.Named("keyserver-dev").Path, append([]string{"up", "--dir", dir, "--listen", "127.0.0.1:0"}, args...)...)
	cmd.SysProcAttr = rig.EndWithTest(syscall.SIGTERM)
	out := &rig.Output{}
	cmd.Env, cmd.Stdout, cmd.Stderr = Environment(), out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended, gone := make(chan error, 1), make(chan struct{})
	go func() {
		ended <- cmd.Wait()
		close(gone)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it fails only for a process that has ended
		<-gone
	})
	for !strings.Contains(out.String(), "Ctrl-C stops") {
		select {
		case err := <-ended:
			log, _ := os.ReadFile(filepath.Join(dir, "up.log"))
			t.Fatalf("not ready: %v\n%s\n%.4000s", err, out, log)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return &Up{Dir: dir, Shown: out.String(), Ended: ended, process: cmd.Process}
}

// Stop sends SIGTERM. The process must end without an error.
func (u *Up) Stop(t testing.TB) {
	t.Helper()
	if err := u.process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-u.Ended; err != nil {
		t.Errorf("the end: %v", err)
	}
}
