// Package hsm provides SoftHSM tokens for tests, and runs the plugin of hack/kms-pkcs11 with them. make provides both
// for packages that import it (hack/needs.sh).
package hsm

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/need"
)

// PIN is the user PIN of every token.
const PIN = "1234 of a test"

// patience is a timeout that only distinguishes a slow machine from a hanging plugin.
const patience = time.Minute

// Token is a SoftHSM token in a separate directory.
type Token struct {
	Label   string
	Library string
	PINFile string
	Dir     string // directory of the token's objects
	program string
	conf    string
}

// New creates a token.
func New(t testing.TB, label string) *Token {
	t.Helper()
	k := &Token{Label: label, Library: needed(t, "RIG_SOFTHSM"), program: needed(t, "RIG_KMS_PKCS11")}
	dependOnSources(t)
	dir := t.TempDir()
	k.Dir, k.PINFile, k.conf = filepath.Join(dir, "tokens"), filepath.Join(dir, "pin"), filepath.Join(dir, "softhsm2.conf")
	rig.Must(t, os.Mkdir(k.Dir, 0o700))
	rig.Must(t, os.WriteFile(k.PINFile, []byte(PIN+"\n"), 0o600))
	rig.Must(t, os.WriteFile(k.conf, []byte("directories.tokendir = "+k.Dir+"\nobjectstore.backend = file\nlog.level = ERROR\n"), 0o600))
	cmd := exec.Command("softhsm2-util", "--module", k.Library, "--init-token", "--free", "--label", label, "--pin", PIN, "--so-pin", "5678 of a test")
	cmd.Env = k.env()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make a token: %v\n%s", err, out)
	}
	return k
}

func needed(t testing.TB, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		need.Missing(t, "SoftHSM or the plugin ("+variable+")", "make test-system, which provides both")
	}
	return path
}

func (k *Token) env() []string { return append(os.Environ(), "SOFTHSM2_CONF="+k.conf) }

// Command returns a command of the plugin with the flags of this token. args follow these flags. If a flag occurs
// twice, the last value counts.
func (k *Token) Command(args ...string) *exec.Cmd {
	cmd := exec.Command(k.program, append([]string{args[0], "--library", k.Library, "--token", k.Label, "--pin-file", k.PINFile}, args[1:]...)...)
	cmd.Env = k.env()
	return cmd
}

// Key creates a key and returns its id.
func (k *Token) Key(t testing.TB, label string) (id string) {
	t.Helper()
	out, err := k.Command("create-key", "--key", label).Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		t.Fatalf("make the key %q: %s", label, failed.Stderr)
	}
	rig.Must(t, err)
	return strings.TrimSpace(string(out))
}

// Plugin is a KMS plugin process that wraps keys with a key of a token.
type Plugin struct {
	Socket string

	log    *rig.Output
	cmd    *exec.Cmd
	exited chan struct{}
}

// Serve starts a plugin and waits for its socket. The plugin ends with the test.
func (k *Token) Serve(t testing.TB, socket, label string, args ...string) *Plugin {
	t.Helper()
	p := &Plugin{Socket: socket, log: &rig.Output{}, exited: make(chan struct{})}
	p.cmd = k.Command(append([]string{"serve", "--key", label, "--listen", socket}, args...)...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = rig.EndWithTest(syscall.SIGKILL)
	rig.Must(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // its output is in the log
		close(p.exited)
	}()
	t.Cleanup(p.Kill)
	rig.Within(t, patience, "the plugin answers", func() bool {
		select {
		case <-p.exited:
			t.Fatalf("the plugin ended: %s", p.log)
		default:
		}
		info, err := os.Stat(socket)
		return err == nil && info.Mode().Type() == fs.ModeSocket && strings.Contains(p.log.String(), "wrapping by key")
	})
	return p
}

// Exited returns a channel that is closed when the process has ended.
func (p *Plugin) Exited() <-chan struct{} { return p.exited }

// Signal sends a signal to the process, for instance SIGSTOP.
func (p *Plugin) Signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	rig.Must(t, p.cmd.Process.Signal(signal))
}

// Kill kills the process with SIGKILL.
func (p *Plugin) Kill() {
	_ = p.cmd.Process.Kill() // it fails only for a process that has ended
	<-p.exited
}

// dependOnSources makes the result of the running test depend on the sources of the
// plugin (see test/program).
func dependOnSources(t testing.TB) {
	t.Helper()
	root, err := rig.Root()
	rig.Must(t, err)
	rig.Must(t, filepath.WalkDir(filepath.Join(root, "hack", "kms-pkcs11"), func(_ string, _ fs.DirEntry, err error) error { return err }))
}
