package program

import (
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// patience is the timeout of every wait for a process. It only distinguishes a slow machine from a hanging process.
const patience = 2 * time.Minute

// Process is a running command of the program.
type Process struct {
	command string
	cmd     *exec.Cmd
	log     *rig.Output
	exited  chan struct{}
	err     error // exit error of the process; valid when exited is closed
}

// Start starts a command and returns immediately. Call Stop or Kill to end the process.
func (p Program) Start(args ...string) (*Process, error) {
	if err := DependOnSources(); err != nil {
		return nil, err
	}
	r := &Process{command: args[0], cmd: exec.Command(p.Path, args...), log: &rig.Output{}, exited: make(chan struct{})}
	r.cmd.Env, r.cmd.Stdout, r.cmd.Stderr = Environment(), r.log, r.log
	// The process ends with the test, also if the test is killed.
	r.cmd.SysProcAttr = rig.EndWithTest(syscall.SIGKILL)
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		r.err = r.cmd.Wait()
		close(r.exited)
	}()
	return r, nil
}

// PID returns the id of the process.
func (r *Process) PID() int { return r.cmd.Process.Pid }

// Exited returns a channel that is closed when the process has ended.
func (r *Process) Exited() <-chan struct{} { return r.exited }

// Wait waits until the process has ended, and returns its exit error.
func (r *Process) Wait() error {
	<-r.exited
	return r.err
}

// Signal sends a signal to the process.
func (r *Process) Signal(signal syscall.Signal) error { return r.cmd.Process.Signal(signal) }

// Log returns the output of the process so far.
func (r *Process) Log() string { return r.log.String() }

// Kill kills the process with SIGKILL and waits for its end.
func (r *Process) Kill() {
	_ = r.cmd.Process.Kill() // it fails only for a process that has ended
	<-r.exited
}

// Freeze stops the process in the middle of its work, with its connections open, until resume is
// called or the test ends. Any goroutine may call it.
func (r *Process) Freeze(t testing.TB) (resume func()) {
	t.Helper()
	if err := r.Signal(syscall.SIGSTOP); err != nil {
		t.Error(err)
	}
	resume = sync.OnceFunc(func() { _ = r.Signal(syscall.SIGCONT) }) // it fails only for a process that has ended
	t.Cleanup(resume)
	return resume
}

// Stop sends SIGTERM and waits until the process has drained and ended. It returns an error if the process ended
// earlier.
func (r *Process) Stop() error {
	if err := r.Signal(syscall.SIGTERM); err != nil {
		return errors.Join(fmt.Errorf("%s has ended by itself: %w", r.command, err), r.Wait())
	}
	select {
	case <-r.exited:
	case <-time.After(patience):
		r.Kill()
		return fmt.Errorf("%s does not stop\n%s", r.command, r.log)
	}
	if r.err != nil {
		return fmt.Errorf("%s: %w\n%s", r.command, r.err, r.log)
	}
	return nil
}
