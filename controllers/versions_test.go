package controllers

import (
	"context"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

// warnings records the warnings of an API server.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

var _ = Describe("A manifest of the deprecated version", func() {
	It("is applied with a warning, and is the same object in the present version", func(ctx context.Context) {
		s, warned := newStage(ctx), &warnings{}
		cfg := rest.CopyConfig(restConfig)
		cfg.WarningHandlerWithContext = warned
		user, err := client.New(cfg, client.Options{Scheme: controlplane.Scheme()})
		Expect(err).NotTo(HaveOccurred())
		present := s.role(fresh("Deprecated"), []string{"HMAC Data"})
		manifest := func() runtime.ApplyConfiguration {
			u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
				"keyServerRef": map[string]any{"name": s.name}, "roleName": *present.Spec.RoleName, "operations": []any{"HMAC Data"},
			}}}
			u.SetGroupVersionKind(v1beta1.Deprecated.WithKind("Role"))
			u.SetNamespace(present.Namespace)
			u.SetName(present.Name)
			return client.ApplyConfigurationFromUnstructured(u)
		}
		Expect(user.Apply(ctx, manifest(), client.FieldOwner("git"))).To(Succeed())
		Expect(warned.texts).To(ConsistOf("trust.keyserver.dev/v1alpha1 Role is deprecated; use trust.keyserver.dev/v1beta1"))
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(kube.Delete(ctx, present))).To(Succeed()) })
		Eventually(readiness(ctx, present)).Should(beReady("created"))

		// After the manager's writes, the same manifest changes nothing.
		before := present.ResourceVersion
		Expect(user.Apply(ctx, manifest(), client.FieldOwner("git"))).To(Succeed())
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(present), present)).To(Succeed())
		Expect(present.ResourceVersion).To(Equal(before))

		both := map[string]map[string]any{}
		for _, version := range []string{v1beta1.GroupVersion.Version, v1beta1.Deprecated.Version} {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("Role").GroupKind().WithVersion(version))
			Expect(user.Get(ctx, client.ObjectKeyFromObject(present), u)).To(Succeed())
			u.SetAPIVersion("")
			both[version] = u.Object
		}
		Expect(both[v1beta1.Deprecated.Version]).To(Equal(both[v1beta1.GroupVersion.Version]))
	})
})
