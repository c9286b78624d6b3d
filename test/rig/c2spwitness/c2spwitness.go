// Package c2spwitness runs the witness of test/thirdparty/c2sp-witness for tests. make provides the program for
// packages that import it (hack/needs.sh).
package c2spwitness

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// patience is a timeout that only distinguishes a slow machine from a hanging witness.
const patience = time.Minute

// Start runs a witness of a log until the test ends. It returns the value for --witness, URL=VKEY.
func Start(t testing.TB, log string) string {
	t.Helper()
	program := rig.Tool(t, "the witness of test/thirdparty/c2sp-witness", "RIG_C2SP_WITNESS", "test/thirdparty/c2sp-witness")
	cmd := exec.Command(program, log)
	var said, complaint rig.Output
	cmd.Stdout, cmd.Stderr = &said, &complaint
	cmd.SysProcAttr = rig.EndWithTest(syscall.SIGKILL)
	rig.Must(t, cmd.Start())
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // only its output matters
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
