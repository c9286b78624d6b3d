// Package versions moves a cluster with 1,000 objects from v1alpha1 to v1beta1 with the commands of docs/upgrade.md,
// and goes back to the former manager.
package versions

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
	"github.com/keyserver-operator/keyserver-operator/test/rig/markdown"
	"github.com/keyserver-operator/keyserver-operator/test/rig/move"
	"github.com/keyserver-operator/keyserver-operator/test/rig/need"
	"github.com/keyserver-operator/keyserver-operator/test/rig/shell"
)

// built is this release, and former is the release that has only v1alpha1.
var built, former program.Program

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if controlplane.Missing() {
		return need.Suite(controlplane.Programs, controlplane.Remedy)
	}
	files, err := move.FormerFiles()
	if err == nil {
		former, err = program.BuildChanged(files)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = former.Remove() }() // a leftover in the temporary directory fails no test
	return program.Main(m, &built, false)
}

// world is a cluster and a key server.
type world struct {
	*move.Cluster
	kubeconfig string // path
	blocks     []markdown.Block
	directory  string // where the commands run
	manager    *program.Process
	metrics    string // address of the manager's metrics
}

func newWorld(t *testing.T) *world {
	t.Helper()
	shell.Need(t)
	root, err := rig.Root()
	rig.Must(t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs", "upgrade.md"))
	rig.Must(t, err)
	environment := controlplane.Start(t, func(e *envtest.Environment) { e.CRDDirectoryPaths, e.CRDs = nil, move.FormerDefinitions(t) })
	w := &world{
		Cluster:   move.NewCluster(t, environment.Config, environment.ControlPlane.Etcd.URL.String()),
		directory: t.TempDir(), metrics: rig.FreeAddress(t, "127.0.0.1"),
	}
	w.blocks = slices.DeleteFunc(markdown.Blocks(string(text)), func(b markdown.Block) bool { return b.Heading != "Move to v1beta1" })
	if len(w.blocks) != 2 {
		t.Fatalf("docs/upgrade.md has %d blocks, want 2", len(w.blocks))
	}
	rig.Must(t, os.Symlink(filepath.Join(root, "config"), filepath.Join(w.directory, "config")))
	rig.DependsOn(t, "config/crd")
	w.kubeconfig = filepath.Join(w.directory, "kubeconfig")
	rig.Must(t, os.WriteFile(w.kubeconfig, environment.KubeConfig, 0o600))

	server, err := built.Serve(filepath.Join(t.TempDir(), "data"))
	rig.Must(t, err)
	t.Cleanup(server.Kill)
	w.Admin = server.Admin(t, 5)
	w.declareKeyServer(t, server)
	return w
}

func (w *world) declareKeyServer(t *testing.T, server *program.Server) {
	t.Helper()
	password, err := server.Password()
	rig.Must(t, err)
	ca, err := os.ReadFile(filepath.Join(server.DataDir, "ca.crt"))
	rig.Must(t, err)
	bundle := string(ca)
	w.Create(t,
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "admin"},
			StringData: map[string]string{"username": "admin", "password": password},
		},
		&v1beta1.KeyServer{
			ObjectMeta: metav1.ObjectMeta{Name: "default"},
			Spec: v1beta1.KeyServerSpec{
				URL: "https://" + server.Address, CABundle: &v1beta1.CABundle{Inline: &bundle},
				Credentials: v1beta1.KeyServerCredentials{Administrator: v1beta1.AdministratorCredential{
					SecretRef: &v1beta1.CredentialSecretReference{Namespace: "kube-system", Name: "admin"},
				}},
				Grants: []v1beta1.Grant{v1beta1.GrantAll("default", v1beta1.GrantedNamespaces{Names: []string{"default"}})},
			},
		})
}

// patience is the timeout of a step with all objects.
const patience = 3 * rig.Patience

// start replaces the manager, and waits until the new one has verified all objects. Its metric counts only objects that
// this process has reconciled.
func (w *world) start(t *testing.T, of program.Program) {
	t.Helper()
	w.stop(t)
	var err error
	w.manager, err = of.Start("manager", "--kubeconfig", w.kubeconfig, "--metrics-listen", w.metrics)
	rig.Must(t, err)
	t.Cleanup(w.manager.Kill)
	rig.Within(t, patience, "the manager has verified all objects", func() bool {
		for kind, want := range move.PerKind {
			n, err := rig.FindMetric(w.metrics, fmt.Sprintf(`keyserver_objects{kind="%s",reason="Verified"}`, kind))
			if err != nil || int(n) != want {
				return false
			}
		}
		return true
	})
}

func (w *world) stop(t *testing.T) {
	t.Helper()
	if w.manager == nil {
		return
	}
	if err := w.manager.Stop(); err != nil {
		t.Error(err)
	}
	w.manager = nil
}

// run runs a block of the document, or other commands, with an input. It returns their output.
func (w *world) run(t *testing.T, commands, stdin string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir, cmd.Stdin = w.directory, strings.NewReader(stdin)
	cmd.Env = append(program.Environment(), "HOME="+w.directory, "KUBECONFIG="+w.kubeconfig, "PATH="+filepath.Dir(controlplane.Kubectl(t))+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = rig.EndWithTest(syscall.SIGKILL)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", commands, err, out)
	}
	return string(out), err
}

// refused checks that the API server refuses each former definition.
func (w *world) refused(t *testing.T) {
	t.Helper()
	for _, crd := range move.FormerDefinitions(t) {
		text, err := yaml.Marshal(crd)
		rig.Must(t, err)
		_, err = w.run(t, "kubectl apply -f -", string(text))
		if err == nil || !strings.Contains(err.Error(), "status.storedVersions") || !strings.Contains(err.Error(), `"v1beta1": missing from spec.versions`) {
			t.Errorf("the former definition %s: %v", crd.Name, err)
		}
	}
}

// conflict is a shell function that changes an object before the first replace.
const conflict = `kubectl() {
	if [ "$1" = replace ] && [ ! -e conflict ]; then
		touch conflict
		command kubectl annotate acltemplates.trust.keyserver.dev/acltemplate-0 example.com/changed=true
	fi
	command kubectl "$@"
}
`

// TestMove starts the former manager on the former and the new CRDs. Then it starts the new manager, migrates the
// objects, and returns to the former manager.
func TestMove(t *testing.T) {
	w := newWorld(t)
	w.Create(t, move.Declared(t, "password/admin")...)
	w.start(t, former)
	w.Ready(t, w.V1alpha1, "")
	const total = move.Objects + 1 // with the KeyServer
	if got, want := w.Stored(t), map[string]int{move.Old: total}; !maps.Equal(got, want) {
		t.Fatalf("etcd has %v, want %v", got, want)
	}

	t.Log("the new definitions")
	_, err := w.run(t, w.blocks[0].Text, "")
	rig.Must(t, err)
	w.StoredVersions(t, v1beta1.Deprecated.Version, v1beta1.GroupVersion.Version)
	w.Edit(t, "HMAC Data")
	w.refused(t)
	w.stop(t)
	_, edited := w.Changes(t, 0)

	t.Log("the new manager")
	w.start(t, built)
	w.Ready(t, w.V1beta1, "")
	if got := w.Stored(t); got[move.Old] < move.Objects-10 { // the rest was written since
		t.Errorf("etcd has %v before the migration", got)
	}

	t.Log("the migration")
	out, err := w.run(t, conflict+w.blocks[1].Text, "")
	rig.Must(t, err)
	if !strings.Contains(out, "the object has been modified") {
		t.Errorf("there was no conflict:\n%s", out)
	}
	w.StoredVersions(t, v1beta1.GroupVersion.Version)
	if got, want := w.Stored(t), map[string]int{move.Present: total}; !maps.Equal(got, want) {
		t.Errorf("etcd has %v, want %v", got, want)
	}
	w.Ready(t, w.V1beta1, "")

	t.Log("the former manager again")
	w.start(t, former)
	w.Ready(t, w.V1alpha1, "")
	if made, _ := w.Changes(t, edited); len(made) > 0 {
		t.Errorf("the key server was changed: %+v", made)
	}
	w.Edit(t, "List Operations")
	w.refused(t)
}
