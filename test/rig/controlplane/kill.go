package controlplane

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// KeepAcrossRestarts keeps the certificates and the port of the API server when its process ends, so that a test can kill and
// restart it.
func KeepAcrossRestarts(t testing.TB) func(*envtest.Environment) {
	t.Helper()
	return func(e *envtest.Environment) {
		s := e.ControlPlane.GetAPIServer()
		s.CertDir = t.TempDir()
		var err error
		s.Address, s.Port, err = net.SplitHostPort(rig.FreeAddress(t, "127.0.0.1"))
		rig.Must(t, err)
	}
}

// KillAPIServer kills the API server on a port with SIGKILL. It returns a function that starts it again with
// the same command line. The new process ends with the test.
func KillAPIServer(t testing.TB, port string) (start func()) {
	t.Helper()
	pid, err := childNamed("kube-apiserver", port)
	rig.Must(t, err)
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	rig.Must(t, err)
	args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
	rig.Must(t, syscall.Kill(pid, syscall.SIGKILL))
	return func() {
		t.Helper()
		// On a busy machine, the port of a killed process may stay in use for a second.
		rig.Soon(t, "the port of the API server is free", func() bool { return isFree(net.JoinHostPort("127.0.0.1", port)) })
		again := exec.Command(args[0], args[1:]...) // the same command line
		again.SysProcAttr = rig.EndWithTest(syscall.SIGKILL)
		says := &rig.Output{}
		again.Stdout, again.Stderr = says, says
		rig.Must(t, again.Start())
		ended := make(chan struct{})
		go func() {
			_ = again.Wait() // the error shows that it was killed
			close(ended)
		}()
		t.Cleanup(func() {
			_ = again.Process.Kill() // it fails only for a process that has ended
			<-ended
			if t.Failed() {
				t.Logf("the log of an API server that was started again ends with\n%s", says.Tail())
			}
		})
	}
}

func isFree(address string) bool {
	l, err := net.Listen("tcp", address)
	return err == nil && l.Close() == nil
}

// Port returns the port of an address or of a URL without a path.
func Port(host string) string { return strings.TrimSuffix(host[strings.LastIndex(host, ":")+1:], "/") }

// childNamed returns the id of a child process of the test. name is the name of its program, and its command line
// contains holds.
func childNamed(name, holds string) (int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil {
			continue
		}
		_, fields, _ := bytes.Cut(stat, []byte(") "))
		parent := strings.Fields(string(fields))
		if len(parent) > 1 && parent[1] == strconv.Itoa(os.Getpid()) &&
			bytes.Contains(stat, []byte("("+name)) && bytes.Contains(line, []byte(holds)) {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("no child of this process is named %s", name)
}
