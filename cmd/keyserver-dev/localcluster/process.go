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
	stopTimeout  = 3 * time.Second // for a program that was asked to end
	pollInterval = 50 * time.Millisecond
	probeTimeout = 5 * time.Second
)

// process is a program that runs.
type process struct {
	name   string
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // once exited is closed
}

// startProcess starts a program that outlives ctx: stop ends it in order.
func startProcess(ctx context.Context, log io.Writer, path string, args ...string) (*process, error) {
	//nolint:gosec // it is one of the two programs, from the directory that the user named
	cmd := exec.CommandContext(context.WithoutCancel(ctx), path, args...)
	p := &process{name: filepath.Base(path), cmd: cmd, exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = ofOurs()
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // at whose end the program ends, too
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

// await returns once url answers 200.
func (p *process) await(ctx context.Context, c *http.Client, url string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("it does not answer after %s", startTimeout))
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := probe(ctx, c, url)
		select {
		case <-p.exited: // whoever answers is somebody else
			return fmt.Errorf("%s ended before it answered (%w)", p.name, p.ended())
		default:
		}
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.exited:
			return fmt.Errorf("%s ended before it answered (%w)", p.name, p.ended())
		case <-ctx.Done():
			return fmt.Errorf("%s: %w; at last: %w", p.name, context.Cause(ctx), err)
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
		return fmt.Errorf("it answers %s", response.Status)
	}
	return nil
}

// ended is how the process ended.
func (p *process) ended() error {
	if p.err == nil {
		return errors.New("exit status 0")
	}
	return p.err
}

// stop asks the process to end, and kills it when it does not. There may be none.
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
		return nil // nobody acts upon how
	case <-timeout.C:
	}
	// kube-apiserver may wait for a minute for whoever watches. What counts is in
	// etcd's files, which hold what was written also when it is killed.
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.exited
	return nil
}

// endLeftovers ends processes that still run on our directories. They are
// recognised by their names and by their arguments, which name the directories;
// the caller holds the lock that says nobody else uses these.
func endLeftovers(etcdDir, certDir string) error {
	wanted := map[string]string{"etcd": "--data-dir=" + etcdDir, "kube-apiserver": "--cert-dir=" + certDir}
	entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, path := range entries {
		cmdline, err := os.ReadFile(path)
		if err != nil {
			continue // ended in between, or somebody else's
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
			return fmt.Errorf("process %d of an earlier run still uses %s and cannot be ended: %w", pid, filepath.Dir(etcdDir), err)
		}
	}
	return nil
}

// endProcess kills a process and waits until it is gone.
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
	return errors.New("it does not end")
}
