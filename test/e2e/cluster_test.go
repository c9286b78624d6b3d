package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

// cluster is a kube-apiserver with its etcd, and the custom resources.
type cluster struct {
	kubeconfig string // path
	home       string // where kubectl keeps what it discovers
	port       string // of the API server
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	// The API server's certificates outlive its process, so that it can be
	// started again.
	environment := controlplane.Start(t, func(e *envtest.Environment) { e.ControlPlane.GetAPIServer().CertDir = t.TempDir() })
	c := &cluster{kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), home: t.TempDir(), port: portOf(environment.Config.Host)}
	if err := os.WriteFile(c.kubeconfig, environment.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// killAPIServer ends the API server as kill -9 does and returns what starts it
// again.
func (c *cluster) killAPIServer(t *testing.T) (restart func()) {
	t.Helper()
	pid, err := childNamed("kube-apiserver", c.port)
	if err != nil {
		t.Fatal(err)
	}
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	rig.Soon(t, "the API server is gone", func() bool { return !c.answers(t) })
	return func() {
		again := exec.Command(args[0], args[1:]...) // the command line that ran before
		again.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		var says bytes.Buffer // read once the process has ended
		again.Stdout, again.Stderr = &says, &says
		if err := again.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = again.Process.Kill() // it fails only for a process that has ended
			_ = again.Wait()         // says that it was killed
			if t.Failed() {
				t.Logf("the second API server's log ends with\n%s", says.Bytes()[max(0, says.Len()-8<<10):])
			}
		})
		rig.Soon(t, "the API server is ready again", func() bool { return c.answers(t) })
	}
}

// answers reports whether the API server says that it is ready.
func (c *cluster) answers(t *testing.T) bool {
	t.Helper()
	out, err := c.try(t, "", "get", "--raw", "/readyz")
	return err == nil && out == "ok"
}

func portOf(host string) string { return host[strings.LastIndex(host, ":")+1:] }

// childNamed finds the process that this one has started, by the name of its
// program and something that its command line holds.
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
