package localcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	stopTimeout  = 3 * time.Second // time to exit after SIGTERM
	pollInterval = 50 * time.Millisecond
	probeTimeout = 5 * time.Second
)

// process is a running program.
type process struct {
	name   string
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // valid when exited is closed
}

// startProcess starts a program. The program runs until stop ends it, even if ctx ends earlier.
func startProcess(ctx context.Context, log io.Writer, path string, args ...string) (*process, error) {
	//nolint:gosec // path is one of the two programs, in the directory that the user named
	cmd := exec.CommandContext(context.WithoutCancel(ctx), path, args...)
	p := &process{name: filepath.Base(path), cmd: cmd, exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = ofOurs()
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // Pdeathsig kills the program when this thread ends
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	return p, nil
}

// await returns nil when url responds with 200.
func (p *process) await(ctx context.Context, c *http.Client, url string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("it does not respond within %s", startTimeout))
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := probe(ctx, c, url)
		select {
		case <-p.exited: // if url responds nevertheless, another process serves it
			return fmt.Errorf("%s stopped before it responded (%w)", p.name, p.ended())
		default:
		}
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.exited:
			return fmt.Errorf("%s stopped before it responded (%w)", p.name, p.ended())
		case <-ctx.Done():
			return fmt.Errorf("%s: %w; the last error was: %w", p.name, context.Cause(ctx), err)
		}
	}
}

func probe(ctx context.Context, c *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := c.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("it responds with %s", response.Status)
	}
	return nil
}

// ended returns the error of the process, or "exit status 0".
func (p *process) ended() error {
	if p.err == nil {
		return errors.New("exit status 0")
	}
	return p.err
}

// stop sends SIGTERM, and SIGKILL after stopTimeout. p may be nil.
func (p *process) stop() error {
	if p == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	timeout := time.NewTimer(stopTimeout)
	defer timeout.Stop()
	select {
	case <-p.exited:
		return nil // the exit status does not matter
	case <-timeout.C:
	}
	// kube-apiserver may wait a minute for its watchers. Killing it loses nothing, because the state is in the
	// files of etcd.
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.exited
	return nil
}

// endLeftovers kills processes of an earlier run that still use these directories. It recognizes them by their name and
// by the directory in their arguments. The caller holds the lock of the directories, so no other run uses them.
func endLeftovers(etcdDir, certDir string) error {
	wanted := map[string]string{"etcd": "--data-dir=" + etcdDir, "kube-apiserver": "--cert-dir=" + certDir}
	entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, path := range entries {
		cmdline, err := os.ReadFile(path)
		if err != nil {
			continue // the process has ended since, or belongs to another user
		}
		args := strings.Split(string(cmdline), "\x00")
		if argument, ours := wanted[filepath.Base(args[0])]; !ours || !slices.Contains(args, argument) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(path, "/proc/%d/cmdline", &pid); err != nil {
			continue
		}
		if err := endProcess(pid); err != nil {
			return fmt.Errorf("process %d of an earlier run still uses %s and cannot be stopped: %w", pid, filepath.Dir(etcdDir), err)
		}
	}
	return nil
}

// endProcess kills a process and waits until it ends.
func endProcess(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	for range 100 {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d/fd", pid)); errors.Is(err, os.ErrNotExist) {
			return nil
		}
		time.Sleep(pollInterval)
	}
	return errors.New("it does not stop")
}
