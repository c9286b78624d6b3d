//go:build cluster

package cluster

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestInstallFiles installs the files of a release with the commands of docs/install.md, uninstalls them without their
// keys, and installs them again.
func TestInstallFiles(t *testing.T) {
	n := newNode(t)
	n.deleteLeftNamespaces(t, "payments", namespace)
	n.showWhenFailed(t)
	n.inOrder(t, []stage{
		{"install", func(t *testing.T, n *node) {
			cmd := exec.CommandContext(t.Context(), "go", "run", "./hack/chart", "-image", image+":"+release, "-out", n.work)
			cmd.Dir = n.root
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			n.volumes(t, "file-1")
			installFile(t, n)
		}},
		{"a workload", workloadOfOnePod},
		{"uninstall and keep the trust", func(t *testing.T, n *node) { uninstallFile(t, n, "Uninstall and keep the declared trust", 1) }},
		{"install again", func(t *testing.T, n *node) {
			installFile(t, n)
			n.computesTheSame(t)
			n.kubectl(t, "delete", "namespace", "payments", "--timeout=2m")
		}},
		{"uninstall", func(t *testing.T, n *node) { uninstallFile(t, n, "Uninstall and delete the declared trust", 3) }},
		{"delete every key", func(t *testing.T, n *node) {
			n.document(t, "uninstall.md", strings.NewReplacer(), "Delete every key")
		}},
	})
}

func installFile(t *testing.T, n *node) {
	begun := time.Now()
	n.shell(t, n.blocks(t, "install.md", "Install a release", 1)[0])
	logMeasurement(t, "install.yaml: KeyServer Ready after %s", seconds(time.Since(begun)))
}

// uninstallFile follows the first block of a section of docs/uninstall.md, with the commands for a release.
func uninstallFile(t *testing.T, n *node, heading string, blocks int) {
	const (
		all         = "kubectl delete -f install.yaml --ignore-not-found --timeout=5m"
		definitions = "crd --selector app.kubernetes.io/part-of=keyserver-operator"
	)
	for _, command := range []string{all, definitions} {
		if !strings.Contains(n.read(t, "docs/uninstall.md"), "`"+command+"`") {
			t.Fatalf("docs/uninstall.md does not uninstall a release by %s", command)
		}
	}
	commands := strings.NewReplacer("kubectl delete -k config/default --ignore-not-found --timeout=5m", all, "-k config/crd", definitions).
		Replace(n.blocks(t, "uninstall.md", heading, blocks)[0])
	n.shell(t, commands)
	n.awaitField(t, namespace, "persistentvolumeclaim/keyserver-data", "{.status.phase}", "Bound")
	rig.Soon(t, "everything else is deleted", func() bool {
		left, err := n.try("", "kubectl", "get", "crds,clusterroles,deployments", "--all-namespaces", "-l", "app.kubernetes.io/part-of=keyserver-operator", "-o", "name")
		return err == nil && left == ""
	})
}
