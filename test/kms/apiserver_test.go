package kms

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stored "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2"
	"k8s.io/client-go/kubernetes"
	api "k8s.io/kms/apis/v2"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

const (
	provider = "keyserver"
	prefix   = "k8s:enc:kms:v2:" + provider + ":"
	planted  = "the password of somebody"
)

// cluster is a kube-apiserver that encrypts Secrets with a plugin, and its etcd.
type cluster struct {
	kube *kubernetes.Clientset
	etcd string // URL
	port string // of the API server
}

func newCluster(t *testing.T, socket string) cluster {
	t.Helper()
	documented := block(t, "kind: EncryptionConfiguration")
	if !strings.Contains(documented, socketOfDocument) || !strings.Contains(documented, "name: "+provider) {
		t.Fatalf("docs/kms.md has another configuration:\n%s", documented)
	}
	config := filepath.Join(t.TempDir(), "encryption.yaml")
	rig.Must(t, os.WriteFile(config, []byte(strings.ReplaceAll(documented, socketOfDocument, socket)), 0o600))
	environment, err := controlplane.Begin(controlplane.KeepAcrossRestarts(t), func(e *envtest.Environment) {
		e.ControlPlane.GetAPIServer().Configure().Set("encryption-provider-config", config)
	})
	rig.Must(t, err)
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	kube, err := kubernetes.NewForConfig(environment.Config)
	rig.Must(t, err)
	return cluster{kube, environment.ControlPlane.Etcd.URL.String(), controlplane.Port(strings.TrimRight(environment.Config.Host, "/"))}
}

func (c cluster) create(t *testing.T, name string) {
	t.Helper()
	_, err := c.kube.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"password": planted},
	}, metav1.CreateOptions{})
	rig.Must(t, err)
}

// get reads a Secret through kube-apiserver.
func (c cluster) get(t *testing.T, name string) (*corev1.Secret, error) {
	t.Helper()
	return c.kube.CoreV1().Secrets("default").Get(t.Context(), name, metav1.GetOptions{})
}

// reads checks that kube-apiserver returns the stored Secret.
func (c cluster) reads(t *testing.T, when, name string) {
	t.Helper()
	secret, err := c.get(t, name)
	if err != nil || string(secret.Data["password"]) != planted {
		t.Errorf("%s: the Secret %s: %v", when, name, err)
	}
}

// health returns a part of the API server's health.
func (c cluster) health(t *testing.T, path string) (string, error) {
	t.Helper()
	said, err := c.kube.RESTClient().Get().AbsPath(path).DoRaw(t.Context())
	return string(said), err
}

// rewrite stores a Secret unchanged, as "kubectl replace" does.
func (c cluster) rewrite(t *testing.T, name string) {
	t.Helper()
	secret, err := c.get(t, name)
	rig.Must(t, err)
	_, err = c.kube.CoreV1().Secrets("default").Update(t.Context(), secret, metav1.UpdateOptions{})
	rig.Must(t, err)
}

func path(name string) string { return "/registry/secrets/default/" + name }

// stored returns the value in etcd.
func (c cluster) stored(t *testing.T, path string) []byte {
	t.Helper()
	value, found := rig.Stored(t, c.etcd, path)[path]
	if !found {
		t.Fatalf("etcd has no %s", path)
	}
	return value
}

// object returns a Secret as it is stored. It checks that the stored bytes are encrypted.
func (c cluster) object(t *testing.T, name string) *stored.EncryptedObject {
	t.Helper()
	raw := c.stored(t, path(name))
	text, found := bytes.CutPrefix(raw, []byte(prefix))
	if !found || bytes.Contains(raw, []byte(planted)) {
		t.Fatalf("etcd has the Secret %s as %.60q", name, raw)
	}
	object := &stored.EncryptedObject{}
	rig.Must(t, proto.Unmarshal(text, object))
	return object
}

// keyOf returns the id of the key that a Secret is encrypted with.
func (c cluster) keyOf(t *testing.T, name string) string {
	t.Helper()
	return c.object(t, name).GetKeyID()
}

// seedOf has the plugin decrypt the seed of a stored Secret, as a kube-apiserver does that has not read it before.
func (c cluster) seedOf(t *testing.T, p *plugin, name string) error {
	t.Helper()
	object := c.object(t, name)
	answer, err := p.Decrypt(within(t), &api.DecryptRequest{
		Ciphertext: object.GetEncryptedDEKSource(), KeyId: object.GetKeyID(), Annotations: object.GetAnnotations(), Uid: "call-of-a-test",
	})
	if err == nil && len(answer.GetPlaintext()) != 32 {
		t.Errorf("the seed of the Secret %s has %d bytes", name, len(answer.GetPlaintext()))
	}
	return err
}

// A real kube-apiserver stores encrypted Secrets. It still reads them after a rotation of the key lineage, and while
// the plugin or the key server is not running.
func TestRealAPIServer(t *testing.T) {
	w := newWorld(t)
	socket := filepath.Join(t.TempDir(), "s")
	p := w.start(t, socket)
	c := newCluster(t, socket)

	// The text of an unencrypted ConfigMap is in etcd, so a search for the text finds unencrypted Secrets.
	_, err := c.kube.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "open"}, Data: map[string]string{"password": planted},
	}, metav1.CreateOptions{})
	rig.Must(t, err)
	if raw := c.stored(t, "/registry/configmaps/default/open"); !bytes.Contains(raw, []byte(planted)) {
		t.Fatalf("etcd has a ConfigMap as %q", raw)
	}
	for _, name := range []string{"left", "rewritten"} {
		c.create(t, name)
		if key := c.keyOf(t, name); key != w.lineage.String() {
			t.Errorf("the Secret %s is stored by key %s, and the line begins with %s", name, key, w.lineage)
		}
	}

	second := w.rotate(t)
	rig.Succeeds(t, func() error {
		time.Sleep(time.Second) // each attempt is one request, write and read
		// kube-apiserver requests the status once a minute, and when a client requests its health.
		if said, err := c.health(t, "/healthz/kms-providers"); err != nil {
			return fmt.Errorf("%s: %w", said, err)
		}
		c.rewrite(t, "rewritten")
		if key := c.keyOf(t, "rewritten"); key != second.String() {
			return fmt.Errorf("it is stored by key %s; want the one of the rotation, %s", key, second)
		}
		return nil
	})
	if key := c.keyOf(t, "left"); key != w.lineage.String() {
		t.Errorf("what nobody has rewritten is stored by key %s", key)
	}
	for _, name := range []string{"left", "rewritten"} {
		c.reads(t, "after the rotation", name)
	}

	// Without the plugin, kube-apiserver still reads and writes with the seeds that it has already used.
	p.Kill()
	c.reads(t, "without the plugin", "left")
	c.create(t, "written-meanwhile")

	// A kube-apiserver that starts without the plugin cannot read Secrets. It reports this until the plugin runs again
	// at the same socket.
	again := controlplane.KillAPIServer(t, c.port)
	rig.Succeeds(t, func() error { // the address is free after the process has ended
		l, err := net.Listen("tcp", "127.0.0.1:"+c.port)
		if err != nil {
			return err
		}
		return l.Close()
	})
	again()
	rig.Succeeds(t, func() error {
		if said, err := c.health(t, "/readyz/kms-providers"); err == nil || !strings.Contains(said, "KMS Provider "+provider) {
			return fmt.Errorf("it says %q, %w", said, err)
		}
		if _, err := c.get(t, "left"); !apierrors.IsInternalError(err) {
			return fmt.Errorf("the Secret is read: %w", err)
		}
		return nil
	})
	if err := c.seedOf(t, p, "left"); err == nil {
		t.Error("a plugin that was killed decrypts")
	}
	p = w.start(t, socket)
	for _, name := range []string{"left", "rewritten", "written-meanwhile"} {
		rig.Succeeds(t, func() error { _, err := c.get(t, name); return err })
		c.reads(t, "with the plugin again", name)
	}

	// The key server stops, and starts again.
	w.Stop(t)
	c.reads(t, "without the key server", "left")
	c.create(t, "written-later")
	if err := c.seedOf(t, p, "left"); err == nil || !strings.Contains(err.Error(), w.lineage.String()) {
		t.Errorf("without the key server: %v; want the key that is asked for", err)
	}
	w.Restart(t)
	w.admin = w.Admin(t)
	rig.Succeeds(t, func() error { return c.seedOf(t, p, "written-later") })

	// Data that an old key encrypted cannot be read without that key.
	_, err = w.admin.DisableKey(t.Context(), schema.KeyRequest{TTag: w.lineage})
	rig.Must(t, err)
	rig.Succeeds(t, func() error {
		if err := c.seedOf(t, p, "left"); err == nil || !strings.Contains(err.Error(), "KEY_DISABLED") || !strings.Contains(err.Error(), w.lineage.String()) {
			return fmt.Errorf("under a key that is disabled: %w", err)
		}
		return nil
	})
	if err := c.seedOf(t, p, "rewritten"); err != nil {
		t.Errorf("what was rewritten needs the old key: %v", err)
	}
}
