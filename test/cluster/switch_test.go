//go:build cluster

package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestFormsAreSwitched switches from config/default to config/overlays/postgres and back, with the commands of
// docs/install.md. After each switch the key still exists, and no object of the previous form remains.
func TestFormsAreSwitched(t *testing.T) {
	n := newNode(t)
	n.deleteLeftNamespaces(t, "payments", namespace)
	withDatabase(t, n)
	n.kustomize(t, onePod, "resources: [../config/default]\n"+images+release+"\n")
	n.nameScaledOut(t, release)
	n.showWhenFailed(t)
	n.inOrder(t, []stage{
		{"one Pod", installOnePod},
		{"a workload", workloadOfOnePod},
		{"to many", toMany},
		{"nothing of one Pod is left", func(t *testing.T, n *node) {
			n.only(t, "config/volume", replicas, "config/overlays/postgres/keyserver")
		}},
		{"back to one", toOne},
		{"nothing of many is left", func(t *testing.T, n *node) { n.only(t, "config/volume", onePod, "config/keyserver") }},
		{"uninstall", func(t *testing.T, n *node) { n.uninstall(t, onePod) }},
	})
}

// onePod is the directory of the kustomization of config/default.
const onePod = "one"

func installOnePod(t *testing.T, n *node) {
	n.volumes(t, "switch-1", "switch-2")
	for _, directory := range []string{"config/volume", onePod} {
		n.kubectl(t, "apply", "-k", directory)
	}
	n.kubectl(t, "wait", "--for=condition=Established", "crd/keyservers.trust.keyserver.dev", "--timeout=1m")
	n.kubectl(t, "apply", "--server-side", "-k", "config/keyserver")
	n.kubectl(t, "wait", "--for=condition=Ready", "keyserver/default", "--timeout=5m")
}

// volumes creates directories as volumes, each for one claim.
func (n *node) volumes(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		n.kubectl(t, "delete", "persistentvolume/"+name, "--ignore-not-found", "--timeout=2m")
		directory := filepath.Join(n.state, "volumes", name)
		rig.Must(t, os.RemoveAll(directory))
		rig.Must(t, os.Mkdir(directory, 0o700))
		text := strings.NewReplacer("name: keyserver-data\nspec", "name: "+name+"\nspec",
			"  claimRef: {namespace: keyserver-system, name: keyserver-data}\n", "  storageClassName: directories\n",
			"/var/lib/keyserver", directory, "[NODE]", "[node]").Replace(n.fragment(t, "kind: PersistentVolume"))
		n.apply(t, "", text)
	}
}

func workloadOfOnePod(t *testing.T, n *node) {
	replace := strings.NewReplacer("curlimages/curl:8.17.0", "registry.example/workload:1")
	n.document(t, "workloads.md", replace, "Give the namespace a grant", "Declare role, principal and key", "Run the Pod", "Call the key server")
	_, err := n.inPod(computes + ` >/tmp/before`)
	rig.Must(t, err)
}

// computes prints the MAC of a message in the Pod of docs/workloads.md. The MAC only changes if the key changes.
const computes = `set -eu
cd /etc/receipts-key
ask() { curl --silent --show-error --fail-with-body --cacert ca.crt --header 'Content-Type: application/json' --config -; }
session=$(printf 'url = "%s/api/sessions"\ndata = "{\\"method\\":\\"kubernetes\\",\\"token\\":\\"%s\\"}"\n' "$(cat url)" "$(cat /var/run/secrets/keyserver/token)" | ask | jq -r .sessionId)
printf 'url = "%s/api/crypto/mac"\nheader = "Authorization: Bearer %s"\ndata = "{\\"lineage\\":\\"%s\\",\\"data\\":\\"aGVsbG8=\\"}"\n' "$(cat url)" "$session" "$(cat lineage)" | ask | jq -r '.mac, .ttag'`

// computesTheSame waits until the Pod has the CA of the other form and computes the same MAC as before.
func (n *node) computesTheSame(t *testing.T) {
	t.Helper()
	rig.Within(t, 5*time.Minute, "the Pod computes the MAC of before", func() bool {
		_, err := n.inPod(computes + ` >/tmp/after; test "$(cat /tmp/before)" = "$(cat /tmp/after)"`)
		return err == nil
	})
}

func toMany(t *testing.T, n *node) {
	const database = "  - config/overlays/postgres"
	own := strings.NewReplacer(database, "  - ../config/migrate", "{kind: Deployment, name: keyserver-api}", "{kind: Job, name: keyserver-migrate}").Replace(n.fragment(t, database))
	n.kustomize(t, "move", own+images+release+"\n")
	makeSecrets(t, n)
	blocks := n.blocks(t, "install.md", "Move from one Pod to many", 3)
	begun := time.Now()
	n.shell(t, blocks[0], "-k config/migrate\n", "-k move\n")
	out := n.shell(t, blocks[1])
	if !strings.Contains(out, "each compared with the original") {
		t.Errorf("the Job says %q", out)
	}
	moved := time.Since(begun)
	n.shell(t, blocks[2], "-k config/migrate &&", "-k move &&", "-k config/overlays/postgres &&", "-k "+replicas+" &&")
	readyAfter := time.Since(begun)
	n.awaitReplicas(t)
	n.computesTheSame(t)
	logMeasurement(t, "from one Pod to many: moved after %s, KeyServer Ready after %s", seconds(moved), seconds(readyAfter))
	n.awaitField(t, "payments", "key.trust.keyserver.dev/receipts", ready, "True")
}

func toOne(t *testing.T, n *node) {
	n.kustomize(t, "moveback", "resources: [../config/migrate/back]\n"+images+release+"\n")
	n.kustomize(t, onePod, n.fragmentUnder(t, "Move from many to one Pod")+images+release+"\n")
	blocks := n.blocks(t, "install.md", "Move from many to one Pod", 3)
	n.shell(t, blocks[0])
	begun := time.Now()
	out := n.shell(t, blocks[1], "-k config/migrate/back ", "-k moveback ")
	if !strings.Contains(out, "restored keyserver-") {
		t.Errorf("the Job says %q", out)
	}
	moved := time.Since(begun)
	n.shell(t, blocks[2], "-k config/migrate/back &&", "-k moveback &&", "-k config/default ", "-k "+onePod+" ")
	logMeasurement(t, "from many to one Pod: restored after %s, KeyServer Ready after %s", seconds(moved), seconds(time.Since(begun)))
	n.computesTheSame(t)
	n.awaitField(t, "payments", "key.trust.keyserver.dev/receipts", ready, "True")
}

// fragmentUnder returns the first YAML block of docs/install.md under a heading.
func (n *node) fragmentUnder(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(n.root, "docs", "install.md"))
	rig.Must(t, err)
	_, rest, found := strings.Cut(string(text), "# "+heading+"\n")
	_, rest, shown := strings.Cut(rest, "```yaml\n")
	part, _, closed := strings.Cut(rest, "```")
	if !found || !shown || !closed {
		t.Fatalf("docs/install.md shows no yaml under %q", heading)
	}
	return part
}

// only fails the test unless the cluster has the objects of these kustomizations, and no others of the product.
func (n *node) only(t *testing.T, directories ...string) {
	t.Helper()
	var want []string
	for _, directory := range directories {
		want = append(want, strings.Fields(n.shell(t, "kubectl kustomize "+directory+" | kubectl get -f - -o name"))...)
	}
	kinds := []string{"configmaps", "deployments", "horizontalpodautoscalers", "jobs", "networkpolicies", "persistentvolumeclaims", "poddisruptionbudgets",
		"rolebindings", "roles", "serviceaccounts", "services", "clusterrolebindings", "clusterroles", "customresourcedefinitions", "keyservers"}
	got := strings.Fields(n.kubectl(t, "get", strings.Join(kinds, ","), "-n", namespace, "-l", "app.kubernetes.io/part-of=keyserver-operator", "-o", "name"))
	slices.Sort(want)
	for _, object := range got {
		// The names contain a hash of the content, so that a change does not replace the previous ConfigMap.
		if _, has := slices.BinarySearch(want, object); !has && !strings.HasPrefix(object, "configmap/keyserver-settings-") {
			t.Errorf("%s is left behind", object)
		}
	}
	for _, object := range want {
		if !slices.Contains(got, object) && !strings.HasPrefix(object, "namespace/") && !strings.HasPrefix(object, "keyserver.") {
			t.Errorf("%s is not there, or not by its label", object)
		}
	}
}
