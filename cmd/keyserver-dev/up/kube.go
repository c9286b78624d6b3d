package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	k8syaml "sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/config"
	"github.com/keyserver-operator/keyserver-operator/internal/commands"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
)

// Names of the objects that up applies.
const (
	fieldOwner       = client.FieldOwner("keyserver-operator-up")
	keyServerName    = "default"
	samplesNamespace = "default"
	systemNamespace  = "keyserver-system"
	credentialSecret = "keyserver-admin"
)

// servedTimeout bounds how long a cluster may take to serve new custom resource definitions.
const servedTimeout = 30 * time.Second

// kube is a client of the cluster.
type kube struct {
	client.Client
	config  *rest.Config
	objects []*unstructured.Unstructured // the samples that report Ready
}

func newKube(cfg *rest.Config) (*kube, error) {
	c, err := client.New(cfg, client.Options{Scheme: commands.NewScheme()})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return &kube{Client: c, config: cfg}, nil
}

func (k *kube) installCRDs(ctx context.Context) error {
	crds, err := config.CRDs()
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if err := k.apply(ctx, crd, client.ForceOwnership); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, servedTimeout)
	defer cancel()
	return k.waitServed(ctx, crds)
}

// waitServed waits until discovery lists every version of the definitions. A manager that starts earlier would
// not find the kinds.
func (k *kube) waitServed(ctx context.Context, crds []*apiextensionsv1.CustomResourceDefinition) error {
	c, err := discovery.NewDiscoveryClientForConfig(k.config)
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		missing, err := unserved(c, crds)
		if err == nil && missing == "" {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the cluster does not serve the definition %s: %w", missing, ctx.Err()), err)
		}
	}
}

// unserved returns the name of a definition that discovery does not list yet, or "".
func unserved(c discovery.ServerResourcesInterface, crds []*apiextensionsv1.CustomResourceDefinition) (string, error) {
	for _, crd := range crds {
		for _, v := range crd.Spec.Versions {
			list, err := c.ServerResourcesForGroupVersion(crd.Spec.Group + "/" + v.Name)
			if err != nil && !apierrors.IsNotFound(err) {
				return crd.Name, err
			}
			if list == nil || !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == crd.Spec.Names.Plural }) {
				return crd.Name, nil
			}
		}
	}
	return "", nil
}

// applyKeyServer applies the Secret with the administrator's credentials and the KeyServer with the address of
// srv.
func (k *kube) applyKeyServer(ctx context.Context, name string, srv *server.Server) error {
	credentials := credentialSecret
	if name != keyServerName {
		credentials = name + "-admin"
	}
	password, err := os.ReadFile(srv.FirstPasswordFile())
	if err != nil {
		return fmt.Errorf("read the administrator's password: %w", err)
	}
	ca, err := os.ReadFile(srv.CAFile())
	if err != nil {
		return fmt.Errorf("read the CA certificate: %w", err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: credentials, Namespace: systemNamespace},
		Type:       corev1.SecretTypeBasicAuth,
		StringData: map[string]string{"username": bootstrap.AdminName, "password": strings.TrimRight(string(password), "\r\n")},
	}
	grants, err := grantsOfUp()
	if err != nil {
		return err
	}
	bundle := string(ca)
	ks := &v1beta1.KeyServer{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1beta1.KeyServerSpec{
			URL:      srv.URL(),
			CABundle: &v1beta1.CABundle{Inline: &bundle},
			Credentials: v1beta1.KeyServerCredentials{Administrator: v1beta1.AdministratorCredential{
				SecretRef: &v1beta1.CredentialSecretReference{Namespace: systemNamespace, Name: credentials},
			}},
			Grants: grants,
		},
	}
	for _, o := range []client.Object{namespace, secret, ks} {
		if err := k.apply(ctx, o, client.ForceOwnership); err != nil {
			return err
		}
	}
	k.watch(ks)
	return nil
}

// grantsOfUp returns the grants of a normal installation. In addition, each grant allows adoption, because an earlier
// run may have left objects on the key server.
func grantsOfUp() ([]v1beta1.Grant, error) {
	shipped := &v1beta1.KeyServer{}
	if err := k8syaml.UnmarshalStrict(config.KeyServer, shipped); err != nil {
		return nil, fmt.Errorf("read config/keyserver: %w", err)
	}
	for i := range shipped.Spec.Grants {
		shipped.Spec.Grants[i].Adopt = true
	}
	return shipped.Spec.Grants, nil
}

// applySamples applies the sample objects of a directory. If another field owner has edited a field, applySamples keeps
// the edit and reports it.
func (k *kube) applySamples(ctx context.Context, dir string, out io.Writer) error {
	return eachSample(dir, func(content []byte) error {
		decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(string(content)), 4096)
		for {
			u := &unstructured.Unstructured{}
			if err := decoder.Decode(u); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			if u.GetKind() == "" || u.GetKind() == "Kustomization" {
				continue
			}
			if u.GetNamespace() == "" {
				u.SetNamespace(samplesNamespace)
			}
			err := k.apply(ctx, u)
			if apierrors.IsConflict(err) {
				fmt.Fprintf(out, "\n  kept your edit of %s %s\n", u.GetKind(), u.GetName())
			} else if err != nil {
				return err
			}
			if u.GroupVersionKind().Group == v1beta1.GroupVersion.Group {
				k.watch(u)
			}
		}
	})
}

// apply sends a server-side apply request.
func (k *kube) apply(ctx context.Context, o client.Object, opts ...client.ApplyOption) error {
	gvk, err := k.GroupVersionKindFor(o)
	if err != nil {
		return err
	}
	content, err := toUnstructured(o)
	if err != nil {
		return err
	}
	content.SetGroupVersionKind(gvk)
	unstructured.RemoveNestedField(content.Object, "status")
	unstructured.RemoveNestedField(content.Object, "metadata", "creationTimestamp")
	err = k.Apply(ctx, client.ApplyConfigurationFromUnstructured(content), append(opts, fieldOwner)...)
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", gvk.Kind, o.GetName(), err)
	}
	return nil
}

func (k *kube) watch(o client.Object) {
	gvk, err := k.GroupVersionKindFor(o)
	if err != nil {
		return // apply has already returned this error
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	u.SetName(o.GetName())
	u.SetNamespace(o.GetNamespace())
	k.objects = append(k.objects, u)
}

// waitReady waits until every applied object is Ready for its generation.
func (k *kube) waitReady(ctx context.Context) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		var waitingFor []string
		for _, u := range k.objects {
			if err := k.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
				return err
			}
			if c := condition(u, "Ready"); c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != u.GetGeneration() {
				waitingFor = append(waitingFor, u.GetKind()+" "+u.GetName())
			}
		}
		if len(waitingFor) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("still waiting for %s", strings.Join(waitingFor, ", "))
		}
	}
}

// printTable prints the conditions Ready and Verified of each object.
func (k *kube) printTable(ctx context.Context, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "\nKIND\tNAME\tREADY\tVERIFIED\tEVIDENCE")
	for _, u := range k.objects {
		if err := k.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
			return err
		}
		ready, verified := condition(u, "Ready"), condition(u, "Verified")
		evidence := ""
		switch {
		case verified != nil:
			evidence = verified.Message
		case ready != nil:
			evidence = ready.Message
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", u.GetKind(), u.GetName(), status(ready), status(verified), evidence)
	}
	return w.Flush()
}

func status(c *metav1.Condition) string {
	if c == nil {
		return "-"
	}
	return string(c.Status)
}

// condition returns one condition of any object, or nil.
func condition(u *unstructured.Unstructured, name string) *metav1.Condition {
	raw, _, err := unstructured.NestedFieldNoCopy(u.Object, "status", "conditions")
	if err != nil || raw == nil {
		return nil
	}
	b, err := k8syaml.Marshal(raw)
	if err != nil {
		return nil
	}
	var list []metav1.Condition
	if err := k8syaml.Unmarshal(b, &list); err != nil {
		return nil
	}
	return meta.FindStatusCondition(list, name)
}

func toUnstructured(o client.Object) (*unstructured.Unstructured, error) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u, nil
	}
	b, err := k8syaml.Marshal(o)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	return u, k8syaml.Unmarshal(b, &u.Object)
}

func eachSample(dir string, visit func([]byte) error) error {
	entries, err := config.Samples.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		content, err := config.Samples.ReadFile(path.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		if err := visit(content); err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
	}
	return nil
}
