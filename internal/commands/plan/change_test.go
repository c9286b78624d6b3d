package plan_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/plan"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
)

// TestChangesToACluster checks the plan for files that change objects of a cluster. The manager then does the
// same.
func TestChangesToACluster(t *testing.T) {
	k, c := start(t), startCluster(t)
	c.register(t, k)
	inCluster := func(o *plan.Options) { o.Cluster, o.Access = c.Client, nil }

	t.Run("ReplacedCA", func(t *testing.T) {
		old, fresh := newPeer(t, 7), newPeer(t, 8)
		ca := func(name string, p peer, more string) string {
			return object("TrustedCA", name, fmt.Sprintf("{certificate: {inline: %q}, rotation: {overlap: 0s}%s}", p.pem(), more))
		}
		c.apply(t, ca("ca", old, ""))
		was := c.settle(t, v1beta1.ReasonVerified)
		if was["TrustedCA ca"].Provenance != v1beta1.Created {
			t.Fatalf("got %+v", was["TrustedCA ca"])
		}
		must[schema.TrustedCAAdded](t)(k.admin.AddTrustedCA(t.Context(), schema.AddTrustedCARequest{Certificate: fresh.ca.Certificate.Raw}))
		before := k.writes(t)

		for name, manifests := range map[string]string{
			"it may not be deleted": ca("ca", fresh, ", deletionPolicy: Retain"),
			"another declares it":   ca("ca", fresh, "") + ca("heir", old, ""),
		} {
			r := k.mustPlan(t, manifests, inCluster)
			if o := find(t, r, "TrustedCA ca"); o.Action != reconcile.PlanAdopt || !strings.HasSuffix(o.Message, ", which stays") {
				t.Errorf("%s: %+v", name, o)
			}
		}
		r := k.mustPlan(t, ca("ca", newPeer(t, 9), ""), inCluster)
		if o := find(t, r, "TrustedCA ca"); o.Action != reconcile.PlanCreate || !strings.HasSuffix(o.Message, "is removed after the overlap") {
			t.Errorf("one that is not there yet: %+v", o)
		}
		r = k.mustPlan(t, ca("ca", fresh, ""), inCluster)
		if o := find(t, r, "TrustedCA ca"); o.Action != reconcile.PlanUpdate || o.Reason != v1beta1.ReasonProgressing ||
			!strings.HasSuffix(o.Message, "is removed after the overlap") || r.Summary.Agrees {
			t.Errorf("taking over one removes the other: %+v", r)
		}
		if after := k.writes(t); !slices.Equal(before, after) {
			t.Fatalf("the key server was written to: %v", after[len(before):])
		}

		// The manager carries out the plan.
		c.apply(t, ca("ca", fresh, ""))
		for end := time.Now().Add(patience); !slices.Contains(k.writes(t)[len(before):], "removeTrustedCA"); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("nothing was removed: %v", k.writes(t)[len(before):])
			}
		}
	})

	t.Run("NameOfAnother", func(t *testing.T) {
		c.apply(t, object("Role", "named", "{roleName: Named, operations: []}")+object("ACLTemplate", "named", "{templateName: Named, members: []}"))
		c.settle(t, v1beta1.ReasonVerified)
		must[schema.RoleSaved](t)(k.admin.CreateRole(t.Context(), schema.CreateRoleRequest{Name: "Taken"}))
		must[schema.ACLTemplateSaved](t)(k.admin.CreateACLTemplate(t.Context(), schema.ACLTemplateRequest{Name: "Taken"}))
		for what, cluster := range map[string]client.Reader{"present": c.Client, "older": olderDefinitions{c.Client}} {
			r := k.mustPlan(t, object("Role", "named", "{roleName: Taken, operations: []}")+object("ACLTemplate", "named", "{templateName: Taken, members: []}"),
				func(o *plan.Options) { o.Cluster, o.Access = cluster, nil })
			for _, name := range []string{"Role named", "ACLTemplate named"} {
				if o := find(t, r, name); o.Action != reconcile.PlanBlocked || o.Reason != v1beta1.ReasonConflict || len(o.Fields) != 1 {
					t.Errorf("with the %s definitions: %+v", what, o)
				}
			}
		}
	})

	t.Run("EmptiedList", func(t *testing.T) {
		must[schema.PrincipalSaved](t)(k.admin.CreateGroup(t.Context(), schema.CreateGroupRequest{Name: "Trust Operators"}))
		c.apply(t, object("Role", "emptied", "{roleName: Emptied, operations: [HMAC Data]}")+
			object("ACLTemplate", "emptied", "{templateName: Emptied, members: [{principal: group/Trust Operators, rights: [READ]}]}"))
		c.settle(t, v1beta1.ReasonVerified)
		emptied := object("Role", "emptied", "{roleName: Emptied, operations: []}") + object("ACLTemplate", "emptied", "{templateName: Emptied, members: []}")
		r := k.mustPlan(t, emptied, inCluster)
		if r.Summary.Update != 2 {
			t.Errorf("got %+v", r)
		}
		c.apply(t, emptied)
		for end := time.Now().Add(patience); !r.Summary.Agrees; r = k.mustPlan(t, emptied, inCluster) {
			if time.Now().After(end) {
				t.Fatalf("what was planned was not done: %+v", r)
			}
		}
		if r.Summary.None != 2 {
			t.Errorf("got %+v", r)
		}
	})

	// Applying a manifest removes an annotation that an earlier manifest set, but not one that a user set separately.
	t.Run("Unpaused", func(t *testing.T) {
		role := func(name, annotations string) string {
			return strings.Replace(object("Role", name, "{roleName: "+name+", operations: []}"), "{name: "+name+"}", "{name: "+name+", annotations: {"+annotations+"}}", 1)
		}
		pause := v1beta1.AnnotationPaused + `: "true"`
		old := must[[]byte](t)(json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{v1beta1.AnnotationPaused: "true"}}}))
		c.apply(t, role("applied", pause)+role("last-applied", fmt.Sprintf("%s: %q", corev1.LastAppliedConfigAnnotation, old))+role("by-hand", "")+role("taken-over", pause))
		for _, name := range []string{"last-applied", "by-hand", "taken-over"} {
			r := &v1beta1.Role{}
			// The manager also writes to the object.
			if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
				if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, r); err != nil {
					return err
				}
				if r.Annotations == nil {
					r.Annotations = map[string]string{}
				}
				r.Annotations[v1beta1.AnnotationPaused] = "by " + name
				return c.Update(t.Context(), r)
			}); err != nil {
				t.Fatal(err)
			}
		}
		r := k.mustPlan(t, role("applied", "")+role("last-applied", "")+role("by-hand", "")+role("taken-over", ""), inCluster)
		for name, paused := range map[string]bool{"applied": false, "last-applied": false, "by-hand": true, "taken-over": true} {
			if o := find(t, r, "Role "+name); (o.Reason == v1beta1.ReasonPaused) != paused {
				t.Errorf("%s: %+v, paused should be %v", name, o, paused)
			}
		}
		// The API server removes the annotation.
		c.apply(t, role("applied", ""))
		left := &v1beta1.Role{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "applied"}, left); err != nil || left.Annotations[v1beta1.AnnotationPaused] != "" {
			t.Errorf("got %v, %v", left.Annotations, err)
		}
	})

	// A plan for an object that is being deleted needs no permission to read definitions, even if its KeyServer is being
	// deleted. This case is last, because it deletes both.
	t.Run("Deleted", func(t *testing.T) {
		manifests := object("Role", "going", "{roleName: Going, operations: []}")
		c.apply(t, manifests)
		for end := time.Now().Add(patience); c.managed(t)["Role going"].Provenance == ""; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the role is never created")
			}
		}
		role := &v1beta1.Role{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "going"}, role); err != nil {
			t.Fatal(err)
		}
		now := metav1.Now()
		role.DeletionTimestamp = &now
		ks := &v1beta1.KeyServer{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: "default"}, ks); err != nil {
			t.Fatal(err)
		}
		if err := c.Delete(t.Context(), ks); err != nil {
			t.Fatal(err)
		}
		r := k.mustPlan(t, manifests, func(o *plan.Options) {
			o.Access = nil
			o.Cluster = forbidding{c.Client, role}
		})
		if o := find(t, r, "Role going"); o.Action != reconcile.PlanDelete || len(o.Calls) != 1 || !strings.HasPrefix(o.Calls[0], "DELETE /api/roles/") {
			t.Errorf("got %+v", o)
		}
		if len(r.KeyServers) != 1 || !strings.Contains(r.KeyServers[0].Message, "deletion waits") {
			t.Errorf("got %+v", r.KeyServers)
		}
	})
}

// olderDefinitions is a cluster that serves only the deprecated version.
type olderDefinitions struct{ client.Reader }

func (o olderDefinitions) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := missingIn(list); err != nil {
		return err
	}
	return o.Reader.List(ctx, list, opts...)
}

// missingIn returns an error for a list of a Go type of this project, which is one of the present version.
func missingIn(list client.ObjectList) error {
	for _, k := range v1beta1.Kinds {
		if reflect.TypeOf(list) == reflect.TypeOf(k.NewList()) {
			return &meta.NoKindMatchError{GroupKind: v1beta1.GroupVersion.WithKind(k.Name).GroupKind(), SearchedVersions: []string{v1beta1.GroupVersion.Version}}
		}
	}
	return nil
}

// forbidding is a cluster that forbids reading definitions, and in which one role is being deleted.
type forbidding struct {
	client.Reader
	deleted *v1beta1.Role
}

func (f forbidding) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if kind := obj.GetObjectKind().GroupVersionKind().Kind; kind == "CustomResourceDefinition" {
		return apierrors.NewForbidden(kubeschema.GroupResource{Resource: kind}, key.Name, nil)
	}
	return f.Reader.Get(ctx, key, obj, opts...)
}

func (f forbidding) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if roles, is := list.(*v1beta1.RoleList); is {
		roles.Items = []v1beta1.Role{*f.deleted}
		return nil
	}
	return f.Reader.List(ctx, list, opts...)
}

// TestKeyServerThatGoes checks that a plan does not wait for a KeyServer that is being deleted and that no
// object needs.
func TestKeyServerThatGoes(t *testing.T) {
	k, now := start(t), metav1.Now()
	ks := v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: "default", DeletionTimestamp: &now, Finalizers: []string{v1beta1.FinalizerInUse}}}
	_, err := k.plan(t, object("KeyServer", "default", "{url: "+k.URL()+", credentials: {administrator: {secretRef: {namespace: ns, name: admin}}}}"), func(o *plan.Options) {
		o.Cluster = onlyKeyServer{forbidding{}, ks}
	})
	if err == nil || !strings.Contains(err.Error(), "is being deleted, and no object blocks its deletion") {
		t.Errorf("got %v", err)
	}
}

// TestNamespacesForbidden checks that a plan uses the objects' own namespaces if it may not read namespaces.
func TestNamespacesForbidden(t *testing.T) {
	k := start(t)
	r := k.mustPlan(t, object("Role", "a", signers), func(o *plan.Options) { o.Cluster = secretive{} })
	if o := find(t, r, "Role a"); o.Action != reconcile.PlanCreate {
		t.Errorf("got %+v", o)
	}
}

// secretive is an empty cluster that only permits lists.
type secretive struct{ client.Reader }

func (secretive) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewForbidden(kubeschema.GroupResource{}, key.Name, nil)
}

func (secretive) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// onlyKeyServer is a cluster with one KeyServer and no other object.
type onlyKeyServer struct {
	forbidding
	keyServer v1beta1.KeyServer
}

func (o onlyKeyServer) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if all, is := list.(*v1beta1.KeyServerList); is {
		all.Items = []v1beta1.KeyServer{o.keyServer}
	}
	return nil
}
