// Package move has a cluster with 1,000 objects that a test moves from v1alpha1 to v1beta1, and the former release, which
// has only v1alpha1.
package move

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	apiclient "github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/config"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

// Old and Present are the two API versions.
var (
	Old     = v1beta1.Deprecated.String()
	Present = v1beta1.GroupVersion.String()
)

// FormerFiles returns the only file that differs in the former release: it sets the API version of all requests. The
// schemas of both versions are the same.
func FormerFiles() (map[string]string, error) {
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

// FormerDefinitions returns the definitions of the former release: v1alpha1 is the only version.
func FormerDefinitions(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
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

// Cluster is a cluster and its key server.
type Cluster struct {
	V1alpha1, V1beta1 client.Client
	Admin             *apiclient.Client // of the key server
	Etcd              string            // its URL
}

// NewCluster returns a cluster without a client of its key server.
func NewCluster(t *testing.T, config *rest.Config, etcd string) *Cluster {
	t.Helper()
	controlplane.Quiet()
	unlimited := rest.CopyConfig(config)
	unlimited.QPS = -1
	old, err := client.New(unlimited, client.Options{Scheme: formerScheme()})
	rig.Must(t, err)
	present, err := client.New(unlimited, client.Options{Scheme: controlplane.Scheme(apiextensionsv1.AddToScheme)})
	rig.Must(t, err)
	return &Cluster{V1alpha1: old, V1beta1: present, Etcd: etcd}
}

// PerKind is the number of objects of each kind. Their sum is Objects.
var PerKind = map[string]int{"Role": 900, "Principal": 33, "ACLTemplate": 33, "Key": 33, "TrustedCA": 1}

// Objects is the number of declared objects.
const Objects = 1000

// Declared returns the objects to create. owner is the principal of the manager.
func Declared(t *testing.T, owner string) (all []client.Object) {
	t.Helper()
	at := func(kind string, i int) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s-%d", strings.ToLower(kind), i)}
	}
	for i := range PerKind["Role"] {
		name := fmt.Sprint("Role ", i)
		all = append(all, &v1beta1.Role{ObjectMeta: at("Role", i), Spec: v1beta1.RoleSpec{RoleName: &name, Operations: []string{"List Operations"}}})
	}
	for i := range PerKind["Principal"] {
		name := fmt.Sprint("Group ", i)
		all = append(all, &v1beta1.Principal{ObjectMeta: at("Principal", i), Spec: v1beta1.PrincipalSpec{
			PrincipalName: &name, Group: &v1beta1.PrincipalGroup{},
			Roles: []v1beta1.PrincipalRole{{RoleRef: &v1beta1.RoleReference{Name: fmt.Sprint("role-", i)}}},
		}})
	}
	members := []v1beta1.ACLTemplateMember{{Principal: owner, Rights: []v1beta1.Right{"OWNER"}}}
	for i := range PerKind["ACLTemplate"] {
		all = append(all, &v1beta1.ACLTemplate{ObjectMeta: at("ACLTemplate", i), Spec: v1beta1.ACLTemplateSpec{TemplateName: fmt.Sprint("Template ", i), Members: members}})
	}
	for i := range PerKind["Key"] {
		all = append(all, &v1beta1.Key{ObjectMeta: at("Key", i), Spec: v1beta1.KeySpec{
			Algorithm: v1beta1.HMACSHA384, Members: members,
			Publish: &v1beta1.KeyPublication{ConfigMap: v1beta1.ConfigMapTarget{Name: fmt.Sprintf("key-%d", i)}},
		}})
	}
	for i := range PerKind["TrustedCA"] {
		text := rig.NewCA(t, fmt.Sprint("CA ", i)).PEM
		all = append(all, &v1beta1.TrustedCA{ObjectMeta: at("TrustedCA", i), Spec: v1beta1.TrustedCASpec{Certificate: v1beta1.CertificateSource{Inline: &text}}})
	}
	if len(all) != Objects {
		t.Fatalf("%d objects are declared", len(all))
	}
	return all
}

// Create creates objects in v1alpha1 concurrently.
func (c *Cluster) Create(t *testing.T, all ...client.Object) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	todo := make(chan client.Object)
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for obj := range todo {
				if err := c.V1alpha1.Create(ctx, obj); err != nil {
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

// Ready waits until all objects are Ready, in the version of the client, and status.lastHandledReconcileAt of each object
// is handled.
func (c *Cluster) Ready(t *testing.T, kube client.Client, handled string) {
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
				obj, ok := item.(interface {
					client.Object
					Managed() (*v1beta1.ManagedSpec, *v1beta1.ManagedStatus)
				})
				if !ok {
					return fmt.Errorf("%s is not a managed kind", k.Name)
				}
				_, status := obj.Managed()
				is := meta.FindStatusCondition(status.Conditions, v1beta1.ConditionReady)
				if is == nil || is.Status != metav1.ConditionTrue || is.ObservedGeneration != obj.GetGeneration() || status.LastHandledReconcileAt != handled {
					return fmt.Errorf("%s %s is not Ready: %q, %+v", k.Name, obj.GetName(), status.LastHandledReconcileAt, is)
				}
				n++
				return nil
			})
			if err != nil {
				return err
			}
		}
		if n != Objects {
			return fmt.Errorf("%d objects are Ready", n)
		}
		return nil
	})
}

// Edit changes a Role in v1alpha1, and waits until the key server has the change.
func (c *Cluster) Edit(t *testing.T, operation string) {
	t.Helper()
	role := &v1beta1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "role-0"}}
	rig.Must(t, c.V1alpha1.Get(t.Context(), client.ObjectKeyFromObject(role), role))
	before := role.DeepCopy()
	role.Spec.Operations = []string{operation}
	rig.Must(t, c.V1alpha1.Patch(t.Context(), role, client.MergeFrom(before)))
	rig.Succeeds(t, func() error {
		is, err := controlplane.Ready(t.Context(), c.V1alpha1, role)
		if err == nil && (is.Status != metav1.ConditionTrue || is.ObservedGeneration != role.Generation) {
			err = fmt.Errorf("the edited Role of generation %d has the condition %+v", role.Generation, is)
		}
		return err
	})
	operations, err := c.Admin.ListOperations(t.Context())
	rig.Must(t, err)
	roles, err := c.Admin.ListRoles(t.Context())
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

// Changes returns the changes on the key server after a cursor, and the cursor of the last change.
func (c *Cluster) Changes(t *testing.T, after int64) (made []schema.Change, last int64) {
	t.Helper()
	for last = after; ; {
		page, err := c.Admin.ListChanges(t.Context(), schema.ChangesQuery{After: &last})
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

// Stored counts the objects in etcd by their apiVersion.
func (c *Cluster) Stored(t *testing.T) map[string]int {
	t.Helper()
	by := map[string]int{}
	for _, value := range rig.Stored(t, c.Etcd, "/registry/"+v1beta1.GroupVersion.Group+"/") {
		var object metav1.TypeMeta
		rig.Must(t, json.Unmarshal(value, &object))
		by[object.APIVersion]++
	}
	return by
}

// StoredVersions checks status.storedVersions of each definition.
func (c *Cluster) StoredVersions(t *testing.T, want ...string) {
	t.Helper()
	for _, k := range v1beta1.Kinds {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		rig.Must(t, c.V1beta1.Get(t.Context(), client.ObjectKey{Name: k.CRD()}, crd))
		if !slices.Equal(crd.Status.StoredVersions, want) {
			t.Errorf("%s stores %v, want %v", crd.Name, crd.Status.StoredVersions, want)
		}
	}
}
