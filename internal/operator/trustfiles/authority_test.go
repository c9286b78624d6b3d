package trustfiles

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

// TestAuthorityRefuses checks that a certificate that cannot be published leaves the ConfigMap unchanged, and that the
// error has a remedy. test/install tests a successful publication with a real kube-apiserver and the installed rights.
func TestAuthorityRefuses(t *testing.T) {
	where := types.NamespacedName{Namespace: "system", Name: "ca"}
	empty := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: where.Namespace, Name: where.Name}}
	for name, c := range map[string]struct {
		content  string // of the file; empty: the file does not exist
		existing *corev1.ConfigMap
		says     string
	}{
		"no file yet":                   {"", empty, "writes it when it starts"},
		"half a file":                   {"-----BEGIN CERTIFICATE-----\nMIIB", empty, "line 1: the block has no END line"},
		"a private key":                 {"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n" + certificate, empty, "not published"},
		"far too much":                  {strings.Repeat("x", maxBytes+1), empty, "exceeds"},
		"a ConfigMap that is not there": {certificate, nil, "apply the manifests of the installation again"},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			if c.existing != nil {
				client = fake.NewClientset(c.existing)
			}
			file := filepath.Join(t.TempDir(), "ca.crt")
			if c.content != "" {
				if err := os.WriteFile(file, []byte(c.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			a := Authority{ConfigMaps: client.CoreV1(), ConfigMap: where, File: file, Interval: time.Minute, Logger: slog.New(slog.DiscardHandler)}
			if err := a.Publish(t.Context()); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an error that says %q", err, c.says)
			}
			for _, action := range client.Actions() {
				if action.GetVerb() != "get" {
					t.Errorf("sent %s", action.GetVerb())
				}
			}
		})
	}
}

// TestPublishesAll checks that all CAs of the file are published unchanged.
func TestPublishesAll(t *testing.T) {
	where := types.NamespacedName{Namespace: "keyserver-system", Name: "keyserver-ca"}
	client := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: where.Namespace, Name: where.Name}})
	file := filepath.Join(t.TempDir(), "ca.crt")
	a := Authority{ConfigMaps: client.CoreV1(), ConfigMap: where, File: file, Interval: time.Minute, Logger: slog.New(slog.DiscardHandler)}
	for _, content := range []string{certificate, certificate + certificate, certificate} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := a.Publish(t.Context()); err != nil {
			t.Fatal(err)
		}
		have, err := client.CoreV1().ConfigMaps(where.Namespace).Get(t.Context(), where.Name, metav1.GetOptions{})
		if err != nil || have.Data[AuthorityKey] != content {
			t.Errorf("%d bytes are published, want %d: %v", len(have.Data[AuthorityKey]), len(content), err)
		}
	}
}

// certificate is a CA certificate of the samples. Its private key does not exist any more.
const certificate = `-----BEGIN CERTIFICATE-----
MIIB6TCCAZCgAwIBAgIQANcJ8D0eeXPJkoYXKY5mtzAKBggqhkjOPQQDAjBUMTMw
MQYDVQQKEypFeGFtcGxlOiBrZXkgdGhyb3duIGF3YXksIGZvciBzYW1wbGVzIG9u
bHkxHTAbBgNVBAMTFEV4YW1wbGUgV29ya2xvYWRzIENBMCAXDTI2MDEwMTAwMDAw
MFoYDzIwNTYwMTAxMDAwMDAwWjBUMTMwMQYDVQQKEypFeGFtcGxlOiBrZXkgdGhy
b3duIGF3YXksIGZvciBzYW1wbGVzIG9ubHkxHTAbBgNVBAMTFEV4YW1wbGUgV29y
a2xvYWRzIENBMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE1zup32g3IDflwla9
cVW0RnVgMhJ8j2odswRSHGkc2fvgh5d5cElwfajTQH7GKsaIT7aXCJZJVnuRljcn
xUTOp6NCMEAwDgYDVR0PAQH/BAQDAgEGMA8GA1UdEwEB/wQFMAMBAf8wHQYDVR0O
BBYEFDR5/Zooy0CsCT4hMRkFTybfnMetMAoGCCqGSM49BAMCA0cAMEQCIBLGQET1
/LOS2g5ItTJhS/qHRPXyot5s56uH5GLRURYiAiAkOC+FelQtb/Er1QKcrlLbAlw9
nEKHYX53KXSYIuNFbw==
-----END CERTIFICATE-----
`
