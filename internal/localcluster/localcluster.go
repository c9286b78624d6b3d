// Package localcluster runs etcd and kube-apiserver on this machine for
// "keyserver-operator up", with the same library that the tests use. The
// state of etcd is kept, so a later run continues where an earlier one ended.
package localcluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const startTimeout = 90 * time.Second

// Cluster is a running control plane.
type Cluster struct {
	Config     *rest.Config
	Kubeconfig string // path of a kubeconfig with full rights, mode 0600
	plane      *envtest.ControlPlane
}

// Options say where the control plane's programs and state are.
type Options struct {
	Assets string // directory with etcd, kube-apiserver and kubectl
	Dir    string // state; made if it does not exist
	Log    io.Writer
}

// Start runs the control plane and returns once it answers. What an earlier
// run that was killed left running on the same directory is ended first.
func Start(o Options) (*Cluster, error) {
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(o.Assets, name)); err != nil {
			return nil, fmt.Errorf("%s is not in %q; run \"make run\", which provides it, or set KUBEBUILDER_ASSETS", name, o.Assets)
		}
	}
	etcdDir, certDir := filepath.Join(o.Dir, "etcd"), filepath.Join(o.Dir, "apiserver")
	if err := endLeftovers(etcdDir, certDir); err != nil {
		return nil, err
	}
	// The certificates are made anew at each start: their CA lives in memory.
	if err := os.RemoveAll(certDir); err != nil {
		return nil, err
	}
	for _, dir := range []string{etcdDir, certDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	plane := &envtest.ControlPlane{
		Etcd: &envtest.Etcd{
			Path: filepath.Join(o.Assets, "etcd"), DataDir: etcdDir, StartTimeout: startTimeout, Out: o.Log, Err: o.Log,
		},
		APIServer: &envtest.APIServer{
			Path: filepath.Join(o.Assets, "kube-apiserver"), CertDir: certDir, StartTimeout: startTimeout, Out: o.Log, Err: o.Log,
		},
		KubectlPath: filepath.Join(o.Assets, "kubectl"),
	}
	if err := plane.Start(); err != nil {
		return nil, fmt.Errorf("start the control plane: %w", err)
	}
	c := &Cluster{plane: plane, Kubeconfig: filepath.Join(o.Dir, "kubeconfig")}
	if err := c.admit(); err != nil {
		return nil, errors.Join(err, plane.Stop())
	}
	return c, nil
}

// admit makes a user with full rights and writes a kubeconfig for it.
func (c *Cluster) admit() error {
	user, err := c.plane.AddUser(envtest.User{Name: "local-admin", Groups: []string{"system:masters"}}, &rest.Config{QPS: 100, Burst: 200})
	if err != nil {
		return fmt.Errorf("make a user for the control plane: %w", err)
	}
	c.Config = user.Config()
	kubeconfig, err := user.KubeConfig()
	if err != nil {
		return fmt.Errorf("make a kubeconfig: %w", err)
	}
	return os.WriteFile(c.Kubeconfig, kubeconfig, 0o600)
}

// Stop ends the control plane and keeps its state.
func (c *Cluster) Stop() error { return c.plane.Stop() }

// endLeftovers ends processes that still run on our directories. They are
// recognised by their arguments, which name the directories; the caller holds
// the lock that says nobody else uses these.
func endLeftovers(etcdDir, certDir string) error {
	wanted := []string{"--data-dir=" + etcdDir, "--cert-dir=" + certDir}
	entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, path := range entries {
		cmdline, err := os.ReadFile(path)
		if err != nil {
			continue // ended in between, or somebody else's
		}
		if !holdsAny(strings.Split(string(cmdline), "\x00"), wanted) {
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

func holdsAny(args, wanted []string) bool {
	for _, a := range args {
		for _, w := range wanted {
			if a == w {
				return true
			}
		}
	}
	return false
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
		time.Sleep(50 * time.Millisecond)
	}
	return errors.New("it does not end")
}
