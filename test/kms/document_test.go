package kms

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/internal/operator/manifest"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// socketOfDocument is the path of the socket in docs/kms.md.
const socketOfDocument = "/run/keyserver-kms/kms.sock"

// block returns the block of docs/kms.md that has these words.
func block(t *testing.T, words string) string {
	t.Helper()
	root, err := rig.Root()
	rig.Must(t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs", "kms.md"))
	rig.Must(t, err)
	for _, part := range strings.Split(string(text), "```yaml\n")[1:] {
		if part, _, _ = strings.Cut(part, "```"); strings.Contains(part, words) {
			return part
		}
	}
	t.Fatalf("docs/kms.md has no block with %q", words)
	return ""
}

// The manifests in docs/kms.md conform to their schemas.
func TestManifestsOfTheDocument(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trust.yaml")
	rig.Must(t, os.WriteFile(file, []byte(block(t, "kind: Principal")), 0o600))
	all, err := manifest.Read(t.Context(), []string{file}, io.LimitReader(nil, 0))
	rig.Must(t, err)
	schemas, err := manifest.NewSchemas()
	rig.Must(t, err)
	for _, m := range all {
		rig.Must(t, schemas.Recognize(m.Object))
		rig.Must(t, schemas.Complete(m.Object))
		rig.Must(t, schemas.Validate(t.Context(), m.Object, nil))
	}
	if len(all) != 3 {
		t.Errorf("%d objects are declared", len(all))
	}
	var pod corev1.Pod
	rig.Must(t, yaml.UnmarshalStrict([]byte(block(t, "kind: Pod")), &pod))
	if args := strings.Join(pod.Spec.Containers[0].Args, " "); !strings.Contains(args, "--listen=unix://"+socketOfDocument) {
		t.Errorf("the Pod listens otherwise: %s", args)
	}
}
