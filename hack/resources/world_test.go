package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	manifests "github.com/keyserver-operator/keyserver-operator/config"
	"github.com/keyserver-operator/keyserver-operator/controllers"
	wire "github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

// patience bounds a block of commands; only something that hangs exhausts it.
const patience = 5 * time.Minute

// cluster is a real kube-apiserver with the custom resources.
type cluster struct {
	config     *rest.Config
	kubeconfig string
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	environment := controlplane.Start(t)
	config := environment.Config
	config.QPS = -1
	c := &cluster{config, filepath.Join(t.TempDir(), "kubeconfig")}
	if err := os.WriteFile(c.kubeconfig, environment.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// startManager runs the controllers until the test ends.
func (c *cluster) startManager(t *testing.T) {
	t.Helper()
	mgr, err := ctrl.NewManager(c.config, ctrl.Options{
		Scheme: runtime.NewScheme(), Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := controllers.Setup(mgr, controllers.Options{}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// declareKeyServer starts a key server that can be a peer, and applies the
// KeyServer for it.
func (c *cluster) declareKeyServer(t *testing.T, name string, system uint32) {
	t.Helper()
	s := testserver.Start(t, func(cfg *server.Config) {
		cfg.SystemID, cfg.ServerName, cfg.ExternalListen = system, fmt.Sprintf("198.51.100.%d", system), "127.0.0.1:0"
	})
	// The page says that this group is there.
	if _, err := s.Admin(t).CreateGroup(t.Context(), wire.CreateGroupRequest{Name: "Archivists"}); err != nil {
		t.Fatal(err)
	}
	// The page is read by those who have the grants of the installation.
	shipped := &v1alpha1.KeyServer{}
	if err := yaml.UnmarshalStrict(manifests.KeyServer, shipped); err != nil {
		t.Fatal(err)
	}
	grants, err := json.Marshal(shipped.Spec.Grants)
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.shell(t, t.TempDir(), fmt.Sprintf(`kubectl apply -f - <<'END'
apiVersion: v1
kind: Secret
metadata: {name: %[1]s-admin, namespace: kube-system}
stringData: {username: %[2]s, password: %[3]s}
---
apiVersion: trust.keyserver.dev/v1alpha1
kind: KeyServer
metadata: {name: %[1]s}
spec:
  url: %[4]s
  caBundle: {inline: %[5]q}
  credentials: {administrator: {secretRef: {namespace: kube-system, name: %[1]s-admin}}}
  grants: %[6]s
END`, name, testserver.AdminName, testserver.AdminPassword, s.URL(), s.CA(t), grants))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// shell runs commands as a reader does, with kubectl in reach. The first that
// fails ends them.
func (c *cluster) shell(t *testing.T, directory, commands string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = directory
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig, "HOME="+directory,
		"PATH="+filepath.Dir(controlplane.Kubectl(t))+":"+os.Getenv("PATH"))
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}
