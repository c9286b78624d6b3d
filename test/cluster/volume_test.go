//go:build cluster

package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestAVolumeByHand covers a cluster without a volume provisioner. The volume of docs/install.md works unchanged. A
// hostPath volume fails because of the owner of its directory, until the remedy in the table is applied.
func TestAVolumeByHand(t *testing.T) {
	n := newNode(t)
	n.deleteLeftNamespaces(t, "payments", namespace)
	n.kustomize(t, onePod, "resources: [../config/default]\n"+images+release+"\n")
	const mark = "storageclass.kubernetes.io/is-default-class="
	n.kubectl(t, "annotate", "--overwrite", "storageclass/directories", mark+"false")
	t.Cleanup(func() { n.kubectl(t, "annotate", "--overwrite", "storageclass/directories", mark+"true") })
	n.showWhenFailed(t)
	n.inOrder(t, []stage{
		{"hostPath", ofHostPath},
		{"local", func(t *testing.T, n *node) {
			n.byHand(t, "local")
			n.kubectl(t, "apply", "--server-side", "-k", "config/keyserver")
			n.kubectl(t, "wait", "--for=condition=Ready", "keyserver/default", "--timeout=5m")
		}},
		{"uninstall", func(t *testing.T, n *node) { n.uninstall(t, onePod) }},
	})
}

// byHand creates the volume of docs/install.md with another kind, and installs on it. It returns the directory, which
// belongs to root.
func (n *node) byHand(t *testing.T, kind string) string {
	t.Helper()
	n.kubectl(t, "delete", "persistentvolume/keyserver-data", "--ignore-not-found", "--timeout=2m")
	directory := filepath.Join(n.state, "volumes", "by-hand-"+kind)
	rig.Must(t, os.RemoveAll(directory))
	rig.Must(t, os.Mkdir(directory, 0o755))
	n.apply(t, "", strings.NewReplacer("  local: ", "  "+kind+": ", "/var/lib/keyserver", directory, "[NODE]", "[node]").Replace(n.fragment(t, "kind: PersistentVolume")))
	for _, what := range []string{"config/volume", onePod} {
		n.kubectl(t, "apply", "-k", what)
	}
	return directory
}

func ofHostPath(t *testing.T, n *node) {
	directory := n.byHand(t, "hostPath")
	said := ""
	rig.Soon(t, "the API says why it does not start", func() bool {
		out, _ := n.try("", "kubectl", "-n", namespace, "logs", "deployment/keyserver", "-c", "api", "--tail=5")
		said += out
		return strings.Contains(said, "permission denied")
	})
	// The remedy in the table, for a kind other than "local".
	n.run(t, "chown", "65532:65532", directory)
	n.kubectl(t, "apply", "--server-side", "-k", "config/keyserver")
	rig.Within(t, 5*time.Minute, "the KeyServer is Ready", func() bool {
		out, err := n.try("", "kubectl", "get", "keyserver/default", "-o", "jsonpath="+ready)
		return err == nil && out == "True"
	})
	n.uninstall(t, onePod)
}
