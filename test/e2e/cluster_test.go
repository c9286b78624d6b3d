package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

// cluster is a kube-apiserver with its etcd and the CRDs.
type cluster struct {
	kubeconfig string // path
	home       string // cache directory of kubectl
	port       string // of the API server
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	environment := controlplane.Start(t, controlplane.KeepAcrossRestarts(t))
	c := &cluster{kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), home: t.TempDir(), port: controlplane.Port(environment.Config.Host)}
	if err := os.WriteFile(c.kubeconfig, environment.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// killAPIServer kills the API server with SIGKILL. The returned function starts it again.
func (c *cluster) killAPIServer(t *testing.T) (restart func()) {
	t.Helper()
	start := controlplane.KillAPIServer(t, c.port)
	rig.Soon(t, "the API server is gone", func() bool { return !c.answers(t) })
	return func() {
		start()
		rig.Soon(t, "the API server is ready again", func() bool { return c.answers(t) })
	}
}

// answers reports whether the readiness check of the API server succeeds.
func (c *cluster) answers(t *testing.T) bool {
	t.Helper()
	out, err := c.try(t, "", "get", "--raw", "/readyz")
	return err == nil && out == "ok"
}
