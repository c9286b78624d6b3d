// Package operator measures the operator at scale: a real kube-apiserver, a key server as a separate
// process, and the manager in this process, so that its memory and its requests are visible. Its
// writes are counted where they leave the manager, and again in the audit log of the key server.
package operator

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	apiclient "github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/controllers"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

// patience is the timeout of waits. Only a hang exceeds it.
const patience = 40 * time.Minute

// world is a cluster, a key server and the manager between them.
type world struct {
	kube   client.WithWatch  // declares the objects; not counted
	admin  *apiclient.Client // bypasses the manager; not counted
	writes *tally            // by the manager to the API server
	calls  *tally            // by the manager to the key server
}

func newWorld(b *testing.B) *world {
	b.Helper()
	w := &world{writes: newTally(), calls: newTally()}
	config := startControlPlane(b)
	w.connect(b, config)
	server := startKeyServer(b)
	roots, err := program.Roots(server.DataDir)
	if err != nil {
		b.Fatal(err)
	}
	password, err := server.Password()
	if err != nil {
		b.Fatal(err)
	}
	w.admin = program.Client(b, program.Transport(roots, func() string { return server.Address }), "admin", password, 0)
	w.startManager(b, config, server, roots)
	w.declareKeyServer(b, password)
	return w
}

func startControlPlane(b *testing.B) *rest.Config {
	b.Helper()
	config := controlplane.Start(b).Config
	config.QPS = -1 // as the manager does
	return config
}

func (w *world) connect(b *testing.B, config *rest.Config) {
	b.Helper()
	var err error
	if w.kube, err = client.NewWithWatch(rest.CopyConfig(config), client.Options{Scheme: controlplane.Scheme()}); err != nil {
		b.Fatal(err)
	}
}

func startKeyServer(b *testing.B) *program.Server {
	b.Helper()
	binary, err := program.Build(false)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := binary.Remove(); err != nil {
			b.Error(err)
		}
	})
	server, err := binary.Serve(filepath.Join(b.TempDir(), "data"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := server.Stop(); err != nil {
			b.Error(err)
		}
	})
	return server
}

// startManager runs the controllers as the command does, but counts their requests.
func (w *world) startManager(b *testing.B, config *rest.Config, server *program.Server, roots *x509.CertPool) {
	b.Helper()
	counted := rest.CopyConfig(config)
	counted.Wrap(func(next http.RoundTripper) http.RoundTripper { return w.writes.count(next, clusterWrite) })
	mgr, err := ctrl.NewManager(counted, ctrl.Options{
		Scheme: controlplane.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		b.Fatal(err)
	}
	transport := program.Transport(roots, func() string { return server.Address })
	b.Cleanup(transport.CloseIdleConnections)
	through := &http.Client{Transport: w.calls.count(transport, keyServerCall)}
	dial := func(e connection.Endpoint) (connection.API, error) {
		return apiclient.New(apiclient.Options{
			BaseURL: e.BaseURL, HTTPClient: through, Credentials: apiclient.PasswordCredentials(e.Username, e.Password),
			MaxRetries: 1, Timeout: 15 * time.Second, // as the manager's own client
		})
	}
	if err := controllers.Setup(mgr, controllers.Options{Dial: dial}); err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	b.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
}

func (w *world) declareKeyServer(b *testing.B, password string) {
	b.Helper()
	for _, obj := range []client.Object{
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "admin"},
			StringData: map[string]string{"username": "admin", "password": password},
		},
		&v1beta1.KeyServer{
			ObjectMeta: metav1.ObjectMeta{Name: keyServerName},
			Spec: v1beta1.KeyServerSpec{
				URL: program.BaseURL,
				Credentials: v1beta1.KeyServerCredentials{Administrator: v1beta1.AdministratorCredential{
					SecretRef: &v1beta1.CredentialSecretReference{Namespace: "kube-system", Name: "admin"},
				}},
				Grants: []v1beta1.Grant{v1beta1.GrantAll("default", v1beta1.GrantedNamespaces{Names: []string{"default"}})},
			},
		},
	} {
		if err := w.kube.Create(b.Context(), obj); err != nil {
			b.Fatal(err)
		}
	}
	rig.Within(b, patience, "the KeyServer is ready", func() bool { return metric(b, "keyserver_objects", "kind", "KeyServer", "reason", "Verified") == 1 })
}

const keyServerName = "default"

func must(b *testing.B, err error, what string, args ...any) {
	b.Helper()
	if err != nil {
		b.Fatalf("%s: %v", fmt.Sprintf(what, args...), err)
	}
}
