// Package versions moves a cluster with 1,000 objects from v1alpha1 to v1beta1 with the commands of docs/upgrade.md,
// and goes back to the former manager.
package versions

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	apiclient "github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/config"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
	"github.com/keyserver-operator/keyserver-operator/test/rig/markdown"
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
	files, err := changed()
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

// changed returns the only file that differs in the former release: it sets the API version of all requests. The
// schemas of both versions are the same.
func changed() (map[string]string, error) {
	const file = "api/v1beta1/group.go"
	root, err := rig.Root()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return nil, err
	}
	present, other := fmt.Sprintf("Version: %q", v1beta1.GroupVersion.Version), fmt.Sprintf("Version: %q", v1beta1.Deprecated.Version)
	if strings.Count(string(text), present) != 1 {
		return nil, fmt.Errorf("%s has not exactly one %s", file, present)
	}
	return map[string]string{file: strings.Replace(string(text), present, other, 1)}, nil
}

// formerDefinitions returns the definitions of the former release: v1alpha1 is the only version.
func formerDefinitions(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crds, err := config.CRDs()
	rig.Must(t, err)
	for _, crd := range crds {
		crd.Spec.Versions = slices.DeleteFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Name != v1beta1.Deprecated.Version
		})
		if len(crd.Spec.Versions) != 1 {
			t.Fatalf("%s has no version %s", crd.Name, v1beta1.Deprecated.Version)
		}
		only := &crd.Spec.Versions[0]
		only.Served, only.Storage, only.Deprecated, only.DeprecationWarning = true, true, false, nil
	}
	return crds
}

// formerScheme has all kinds in v1alpha1.
func formerScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, k := range v1beta1.Kinds {
		scheme.AddKnownTypes(v1beta1.Deprecated, k.New(), k.NewList())
	}
	metav1.AddToGroupVersion(scheme, v1beta1.Deprecated)
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		panic(err)
	}
	return scheme
}

// world is a cluster and a key server.
type world struct {
	v1alpha1, v1beta1 client.Client // of the cluster
	admin             *apiclient.Client
	etcd              string // its URL
	kubeconfig        string // path
	blocks            []markdown.Block
	directory         string // where the commands run
	manager           *program.Process
	metrics           string // address of the manager's metrics
}

func newWorld(t *testing.T) *world {
	t.Helper()
	shell.Need(t)
	root, err := rig.Root()
	rig.Must(t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs", "upgrade.md"))
	rig.Must(t, err)
	environment := controlplane.Start(t, func(e *envtest.Environment) { e.CRDDirectoryPaths, e.CRDs = nil, formerDefinitions(t) })
	w := &world{directory: t.TempDir(), metrics: rig.FreeAddress(t, "127.0.0.1"), etcd: environment.ControlPlane.Etcd.URL.String()}
	w.blocks = slices.DeleteFunc(markdown.Blocks(string(text)), func(b markdown.Block) bool { return b.Heading != "Move to v1beta1" })
	if len(w.blocks) != 2 {
		t.Fatalf("docs/upgrade.md has %d blocks, want 2", len(w.blocks))
	}
	rig.Must(t, os.Symlink(filepath.Join(root, "config"), filepath.Join(w.directory, "config")))
	rig.DependsOn(t, "config/crd")
	w.kubeconfig = filepath.Join(w.directory, "kubeconfig")
	rig.Must(t, os.WriteFile(w.kubeconfig, environment.KubeConfig, 0o600))
	unlimited := rest.CopyConfig(environment.Config)
	unlimited.QPS = -1
	w.v1alpha1, err = client.New(unlimited, client.Options{Scheme: formerScheme()})
	rig.Must(t, err)
	w.v1beta1, err = client.New(unlimited, client.Options{Scheme: controlplane.Scheme(apiextensionsv1.AddToScheme)})
	rig.Must(t, err)

	server, err := built.Serve(filepath.Join(t.TempDir(), "data"))
	rig.Must(t, err)
	t.Cleanup(server.Kill)
	w.admin = server.Admin(t, 5)
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
	w.create(t,
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

// perKind is the number of objects of each kind. Their sum is objects.
var perKind = map[string]int{"Role": 900, "Principal": 33, "ACLTemplate": 33, "Key": 33, "TrustedCA": 1}

const objects = 1000

// patience is the timeout of a step with all objects.
const patience = 3 * rig.Patience

// declared returns the objects to create.
func declared(t *testing.T) (all []client.Object) {
	t.Helper()
	at := func(kind string, i int) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s-%d", strings.ToLower(kind), i)}
	}
	for i := range perKind["Role"] {
		name := fmt.Sprint("Role ", i)
		all = append(all, &v1beta1.Role{ObjectMeta: at("Role", i), Spec: v1beta1.RoleSpec{RoleName: &name, Operations: []string{"List Operations"}}})
	}
	for i := range perKind["Principal"] {
		name := fmt.Sprint("Group ", i)
		all = append(all, &v1beta1.Principal{ObjectMeta: at("Principal", i), Spec: v1beta1.PrincipalSpec{
			PrincipalName: &name, Group: &v1beta1.PrincipalGroup{},
			Roles: []v1beta1.PrincipalRole{{RoleRef: &v1beta1.RoleReference{Name: fmt.Sprint("role-", i)}}},
		}})
	}
	members := []v1beta1.ACLTemplateMember{{Principal: "password/admin", Rights: []v1beta1.Right{"OWNER"}}}
	for i := range perKind["ACLTemplate"] {
		all = append(all, &v1beta1.ACLTemplate{ObjectMeta: at("ACLTemplate", i), Spec: v1beta1.ACLTemplateSpec{TemplateName: fmt.Sprint("Template ", i), Members: members}})
	}
	for i := range perKind["Key"] {
		all = append(all, &v1beta1.Key{ObjectMeta: at("Key", i), Spec: v1beta1.KeySpec{
			Algorithm: v1beta1.HMACSHA384, Members: members,
			Publish: &v1beta1.KeyPublication{ConfigMap: v1beta1.ConfigMapTarget{Name: fmt.Sprintf("key-%d", i)}},
		}})
	}
	for i := range perKind["TrustedCA"] {
		text := rig.NewCA(t, fmt.Sprint("CA ", i)).PEM
		all = append(all, &v1beta1.TrustedCA{ObjectMeta: at("TrustedCA", i), Spec: v1beta1.TrustedCASpec{Certificate: v1beta1.CertificateSource{Inline: &text}}})
	}
	if len(all) != objects {
		t.Fatalf("%d objects are declared", len(all))
	}
	return all
}

// create creates objects in v1alpha1 concurrently.
func (w *world) create(t *testing.T, all ...client.Object) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	todo := make(chan client.Object)
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for obj := range todo {
				if err := w.v1alpha1.Create(ctx, obj); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, obj := range all {
		todo <- obj
	}
	close(todo)
	group.Wait()
	rig.Must(t, context.Cause(ctx))
}

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
		for kind, want := range perKind {
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

// ready waits until all objects are Ready, in the version of the client.
func (w *world) ready(t *testing.T, kube client.Client) {
	t.Helper()
	rig.Succeeds(t, func() error {
		n := 0
		for _, k := range v1beta1.Kinds {
			if !k.Managed() {
				continue
			}
			list := k.NewList()
			if err := kube.List(t.Context(), list); err != nil {
				return err
			}
			err := meta.EachListItem(list, func(item runtime.Object) error {
				obj := item.(interface {
					client.Object
					Managed() (*v1beta1.ManagedSpec, *v1beta1.ManagedStatus)
				})
				_, status := obj.Managed()
				if c := meta.FindStatusCondition(status.Conditions, v1beta1.ConditionReady); c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != obj.GetGeneration() {
					return fmt.Errorf("%s %s is not Ready: %+v", k.Name, obj.GetName(), c)
				}
				n++
				return nil
			})
			if err != nil {
				return err
			}
		}
		if n != objects {
			return fmt.Errorf("%d objects are Ready", n)
		}
		return nil
	})
}

// edit changes a Role in v1alpha1, and waits until the key server has the change.
func (w *world) edit(t *testing.T, operation string) {
	t.Helper()
	role := &v1beta1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "role-0"}}
	rig.Must(t, w.v1alpha1.Get(t.Context(), client.ObjectKeyFromObject(role), role))
	before := role.DeepCopy()
	role.Spec.Operations = []string{operation}
	rig.Must(t, w.v1alpha1.Patch(t.Context(), role, client.MergeFrom(before)))
	rig.Succeeds(t, func() error {
		c, err := controlplane.Ready(t.Context(), w.v1alpha1, role)
		if err == nil && (c.Status != metav1.ConditionTrue || c.ObservedGeneration != role.Generation) {
			err = fmt.Errorf("the edited Role of generation %d has the condition %+v", role.Generation, c)
		}
		return err
	})
	operations, err := w.admin.ListOperations(t.Context())
	rig.Must(t, err)
	roles, err := w.admin.ListRoles(t.Context())
	rig.Must(t, err)
	for _, r := range roles.Roles {
		if r.Name == *role.Spec.RoleName && len(r.Operations) == 1 {
			for _, o := range operations.Operations {
				if o.ID == r.Operations[0] && o.Name == operation {
					return
				}
			}
		}
	}
	t.Errorf("the key server does not have the Role with %q: %+v", operation, roles.Roles)
}

// changes returns the changes on the key server after a cursor, and the cursor of the last change.
func (w *world) changes(t *testing.T, after int64) (made []schema.Change, last int64) {
	t.Helper()
	for last = after; ; {
		page, err := w.admin.ListChanges(t.Context(), schema.ChangesQuery{After: &last})
		rig.Must(t, err)
		if page.Reset && last > 0 {
			t.Fatalf("the change feed does not go back to %d", last)
		}
		last, made = page.Cursor, append(made, page.Changes...)
		if len(page.Changes) == 0 && !page.Reset {
			return made, last
		}
	}
}

// stored counts the objects in etcd by their apiVersion.
func (w *world) stored(t *testing.T) map[string]int {
	t.Helper()
	by := map[string]int{}
	for _, value := range rig.Stored(t, w.etcd, "/registry/"+v1beta1.GroupVersion.Group+"/") {
		var object metav1.TypeMeta
		rig.Must(t, json.Unmarshal(value, &object))
		by[object.APIVersion]++
	}
	return by
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
	for _, crd := range formerDefinitions(t) {
		text, err := yaml.Marshal(crd)
		rig.Must(t, err)
		_, err = w.run(t, "kubectl apply -f -", string(text))
		if err == nil || !strings.Contains(err.Error(), "status.storedVersions") || !strings.Contains(err.Error(), `"v1beta1": missing from spec.versions`) {
			t.Errorf("the former definition %s: %v", crd.Name, err)
		}
	}
}

// storedVersions checks status.storedVersions of each definition.
func (w *world) storedVersions(t *testing.T, want ...string) {
	t.Helper()
	for _, k := range v1beta1.Kinds {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		rig.Must(t, w.v1beta1.Get(t.Context(), client.ObjectKey{Name: k.CRD()}, crd))
		if !slices.Equal(crd.Status.StoredVersions, want) {
			t.Errorf("%s stores %v, want %v", crd.Name, crd.Status.StoredVersions, want)
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
	w.create(t, declared(t)...)
	w.start(t, former)
	w.ready(t, w.v1alpha1)
	const total = objects + 1 // with the KeyServer
	old, present := v1beta1.Deprecated.String(), v1beta1.GroupVersion.String()
	if got, want := w.stored(t), map[string]int{old: total}; !maps.Equal(got, want) {
		t.Fatalf("etcd has %v, want %v", got, want)
	}

	t.Log("the new definitions")
	_, err := w.run(t, w.blocks[0].Text, "")
	rig.Must(t, err)
	w.storedVersions(t, v1beta1.Deprecated.Version, v1beta1.GroupVersion.Version)
	w.edit(t, "HMAC Data")
	w.refused(t)
	w.stop(t)
	_, edited := w.changes(t, 0)

	t.Log("the new manager")
	w.start(t, built)
	w.ready(t, w.v1beta1)
	if got := w.stored(t); got[old] < objects-10 { // the rest was written since
		t.Errorf("etcd has %v before the migration", got)
	}

	t.Log("the migration")
	out, err := w.run(t, conflict+w.blocks[1].Text, "")
	rig.Must(t, err)
	if !strings.Contains(out, "the object has been modified") {
		t.Errorf("there was no conflict:\n%s", out)
	}
	w.storedVersions(t, v1beta1.GroupVersion.Version)
	if got, want := w.stored(t), map[string]int{present: total}; !maps.Equal(got, want) {
		t.Errorf("etcd has %v, want %v", got, want)
	}
	w.ready(t, w.v1beta1)

	t.Log("the former manager again")
	w.start(t, former)
	w.ready(t, w.v1alpha1)
	if made, _ := w.changes(t, edited); len(made) > 0 {
		t.Errorf("the key server was changed: %+v", made)
	}
	w.edit(t, "List Operations")
	w.refused(t)
}
