//go:build cluster && !smoke

package cluster

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/move"
)

// former is the tag of the release that has only v1alpha1.
const former = "v0.0.9"

// TestMove moves an installation with 1,000 objects from v1alpha1 to v1beta1, as docs/upgrade.md says, and back to the
// former release. test/versions also shows that a conflict is retried, and that the API server refuses the former CRDs.
func TestMove(t *testing.T) {
	n := newNode(t)
	n.deleteLeftNamespaces(t, "payments", namespace)
	m := &movement{node: n}
	n.showWhenFailed(t)
	n.inOrder(t, []stage{
		{"the former release", m.installFormer},
		{"the new CRDs", m.newDefinitions},
		{"the new release", m.newRelease},
		{"the migration", m.migrate},
		{"the former release again", m.formerAgain},
		{"uninstall", func(t *testing.T, n *node) {
			// kubectl would wait for one object after the other.
			n.kubectl(t, "-n", "default", "delete", "trust", "--all", "--wait=false")
			rig.Soon(t, "all objects are deleted", func() bool { return len(m.cluster.Stored(t)) == 0 })
			n.kubectl(t, "delete", "-k", "config/access/publish")
			n.uninstall(t, onePod)
		}},
	})
}

// movement is what the stages of TestMove share.
type movement struct {
	*node
	cluster *move.Cluster
	blocks  []string // of docs/upgrade.md
	last    int64    // last change on the key server
}

// deploy changes the image of the installation.
func (m *movement) deploy(t *testing.T, tag string) {
	t.Helper()
	m.kustomize(t, onePod, "resources: [../config/default]\n"+images+tag+"\n")
	m.kubectl(t, "apply", "-k", onePod)
	m.kubectl(t, "-n", namespace, "rollout", "status", "deployment/keyserver", "--timeout=3m")
	m.awaitField(t, "default", "keyserver/default", ready, "True")
}

// installFormer installs the former release and its CRDs from changed manifests, and declares the objects.
func (m *movement) installFormer(t *testing.T, n *node) {
	m.blocks = n.blocks(t, "upgrade.md", "Move to v1beta1", 2)
	files, err := move.FormerFiles()
	rig.Must(t, err)
	built, err := program.BuildChanged(files)
	rig.Must(t, err)
	defer func() { _ = built.Remove() }()
	directory := filepath.Join(n.work, "former") // unlike that of the program, readable in the container
	rig.Must(t, os.CopyFS(directory, os.DirFS(filepath.Dir(built.Path))))
	n.run(t, filepath.Join(n.root, "hack/cluster/image.sh"), image+":"+former, directory,
		`{"Entrypoint":["/keyserver-operator"],"User":"65532:65532"}`)

	for _, crd := range move.FormerDefinitions(t) {
		text, err := yaml.Marshal(crd)
		rig.Must(t, err)
		rig.Must(t, os.WriteFile(filepath.Join(n.work, "config/crd/bases", crd.Spec.Group+"_"+crd.Spec.Names.Plural+".yaml"), text, 0o600))
	}
	for _, in := range []string{"default", "keyserver"} { // the manager creates that of config/default
		declared := filepath.Join(n.work, "config", in, "keyserver.yaml")
		text, err := os.ReadFile(declared)
		rig.Must(t, err)
		rig.Must(t, os.WriteFile(declared, []byte(strings.Replace(string(text), move.Present, move.Old, 1)), 0o600))
	}
	n.kustomize(t, onePod, "resources: [../config/default]\n"+images+former+"\n")
	installOnePod(t, n)

	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(n.state, "admin.conf"))
	rig.Must(t, err)
	m.cluster = move.NewCluster(t, config, etcd)
	n.kubectl(t, "apply", "-k", "config/access/publish")
	begun := time.Now()
	m.cluster.Create(t, move.Declared(t, "xauth/system:serviceaccount:"+namespace+":keyserver-manager")...)
	m.cluster.Ready(t, m.cluster.V1alpha1, "")
	logMeasurement(t, "%d objects Ready after %s", move.Objects, seconds(time.Since(begun)))
	m.stored(t, map[string]int{move.Old: move.Objects + 1}) // with the KeyServer
}

// stored fails the test unless etcd has these numbers of objects by their API version.
func (m *movement) stored(t *testing.T, want map[string]int) {
	t.Helper()
	if got := m.cluster.Stored(t); !maps.Equal(got, want) {
		t.Fatalf("etcd has %v, want %v", got, want)
	}
}

// newDefinitions runs step 1. The former manager still works.
func (m *movement) newDefinitions(t *testing.T, n *node) {
	crds := filepath.Join("config", "crd")
	rig.Must(t, os.RemoveAll(filepath.Join(n.work, crds)))
	rig.Must(t, os.CopyFS(filepath.Join(n.work, crds), os.DirFS(filepath.Join(n.root, crds))))
	n.shell(t, m.blocks[0])
	m.cluster.StoredVersions(t, v1beta1.Deprecated.Version, v1beta1.GroupVersion.Version)
	m.cluster.Admin = n.admin(t)
	m.cluster.Edit(t, "HMAC Data")
	_, m.last = m.cluster.Changes(t, 0)
}

// newRelease runs step 2. It rewrites few objects.
func (m *movement) newRelease(t *testing.T, _ *node) {
	m.deploy(t, release)
	m.cluster.Ready(t, m.cluster.V1beta1, "")
	if got := m.cluster.Stored(t); got[move.Old] < move.Objects-10 {
		t.Errorf("etcd has %v before the migration", got)
	}
}

// migrate runs step 4.
func (m *movement) migrate(t *testing.T, n *node) {
	begun := time.Now()
	n.shell(t, m.blocks[1])
	logMeasurement(t, "migration of %d objects in %s", move.Objects, seconds(time.Since(begun)))
	m.cluster.StoredVersions(t, v1beta1.GroupVersion.Version)
	m.stored(t, map[string]int{move.Present: move.Objects + 1})
	m.checked(t, "new")
}

// formerAgain starts the former release on the new CRDs.
func (m *movement) formerAgain(t *testing.T, _ *node) {
	m.deploy(t, former)
	m.checked(t, "former")
	m.cluster.Edit(t, "List Operations")
}

// checked has the manager compare all objects with the key server. The key server must not have changed since the new
// CRDs.
func (m *movement) checked(t *testing.T, request string) {
	t.Helper()
	for kind := range move.PerKind {
		m.kubectl(t, "-n", "default", "annotate", "--overwrite", "--all", strings.ToLower(kind)+".trust.keyserver.dev",
			fmt.Sprintf("%s=%s", v1beta1.AnnotationReconcileRequestedAt, request))
	}
	m.cluster.Ready(t, m.cluster.V1beta1, request)
	if made, _ := m.cluster.Changes(t, m.last); len(made) > 0 {
		t.Errorf("the key server was changed: %+v", made)
	}
}
