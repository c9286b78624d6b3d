package controllers

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	apischema "github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/grants"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
)

// trustBundle is the kind of ClusterTrustBundles. The version is the one that the API server serves.
var trustBundle = schema.GroupVersionKind{Group: certificatesv1beta1.GroupName, Kind: "ClusterTrustBundle"}

// maxPublished limits the number of namespaces in which one object publishes.
const maxPublished = 256

// Publishes implements reconcile.Publisher.
func (trustedCAAdapter) Publishes(obj *v1beta1.TrustedCA) []v1beta1.PublishedReference {
	refs := slices.Clone(obj.Status.Published)
	p := obj.Spec.Publish
	if p == nil || p.ConfigMap == nil {
		return refs
	}
	named := []string{obj.Namespace}
	if in := p.ConfigMap.Namespaces; in != nil {
		named = in.Names
	}
	for _, namespace := range named {
		ref := v1beta1.PublishedReference{APIVersion: "v1", Kind: sources.ConfigMap, Namespace: namespace, Name: p.ConfigMap.Name}
		if !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	return refs
}

// Publications implements reconcile.Publisher.
func (trustedCAAdapter) Publications(obj *v1beta1.TrustedCA) *[]v1beta1.PublishedReference {
	return &obj.Status.Published
}

// SelectsNamespaces implements reconcile.NamespaceSelector.
func (trustedCAAdapter) SelectsNamespaces(obj *v1beta1.TrustedCA) bool {
	p := obj.Spec.Publish
	return p != nil && p.ConfigMap != nil && p.ConfigMap.Namespaces != nil && p.ConfigMap.Namespaces.Selector != nil
}

// Published implements reconcile.Publisher.
func (a trustedCAAdapter) Published(ctx context.Context, in reconcile.Input, obj *v1beta1.TrustedCA) ([]reconcile.Publication, error) {
	p := obj.Spec.Publish
	if p == nil {
		return nil, nil
	}
	text, err := a.bundle(ctx, in, obj)
	if err != nil {
		return nil, err
	}
	if p.ClusterTrustBundle != nil {
		return []reconcile.Publication{{
			Kind: trustBundle, Name: bundleName(obj), Content: map[string]any{"spec": map[string]any{"trustBundle": text}},
		}}, nil
	}
	namespaces, err := publishedIn(ctx, in, obj)
	if err != nil {
		return nil, err
	}
	key := p.ConfigMap.Key
	if key == "" {
		key = "ca.crt"
	}
	wanted := make([]reconcile.Publication, len(namespaces))
	for i, namespace := range namespaces {
		wanted[i] = reconcile.ConfigMap(namespace, p.ConfigMap.Name, map[string]string{key: text})
	}
	return wanted, nil
}

func bundleName(obj *v1beta1.TrustedCA) string {
	if name := obj.Spec.Publish.ClusterTrustBundle.Name; name != "" {
		return name
	}
	return obj.Namespace + "." + obj.Name
}

// bundle returns the certificate, and the replaced certificates that are still trusted.
func (a trustedCAAdapter) bundle(ctx context.Context, in reconcile.Input, obj *v1beta1.TrustedCA) (string, error) {
	ca, err := a.certificate(ctx, in, obj)
	if err != nil {
		return "", err
	}
	if ca.fingerprint != obj.Status.Fingerprint {
		return "", &connection.Problem{Reason: v1beta1.ReasonProgressing, RequeueAfter: time.Second, Message: "the declared certificate has changed; the published one stays until the new one is verified"}
	}
	var b bytes.Buffer
	write := func(der []byte) { _ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: der}) } // a write to memory cannot fail
	write(ca.der)
	for _, s := range obj.Status.Superseded {
		old, err := trustedBodies.Of(in.Conn).Get(ctx, in.NotBefore, s.CertificateID)
		if err != nil {
			return "", err
		}
		if len(old.der) > 0 {
			write(old.der)
		}
	}
	return b.String(), nil
}

// trustedBody is a certificate that the key server trusts, or an empty value.
type trustedBody struct {
	id  string
	der []byte
}

// trustedBodies caches certificates by id. They are read only during a rotation, because the list of trusted CAs does
// not contain them.
var trustedBodies = connection.Lookup[trustedBody]{
	Feed: trustedCAs.Name, Name: "trusted CA by id",
	Read: func(ctx context.Context, c *connection.Connection, id string) (trustedBody, error) {
		list, err := c.Officer.ListTrustedCAs(ctx, apischema.TrustedCAsQuery{IncludeBodies: true})
		for _, ca := range list.TrustedCAs {
			if certificateID(ca.Certificate) == id && ca.Certificate.Certificate != nil {
				return trustedBody{id, *ca.Certificate.Certificate}, err
			}
		}
		return trustedBody{id: id}, err
	},
	ID: func(b trustedBody) string { return b.id },
}

// publishedIn returns the sorted namespaces of the ConfigMaps.
func publishedIn(ctx context.Context, in reconcile.Input, obj *v1beta1.TrustedCA) ([]string, error) {
	where := obj.Spec.Publish.ConfigMap.Namespaces
	if where == nil {
		return []string{obj.Namespace}, nil
	}
	namespaces := slices.Clone(where.Names)
	if where.Selector != nil {
		selector, err := metav1.LabelSelectorAsSelector(where.Selector)
		if err != nil {
			return nil, connection.NewProblem(v1beta1.ReasonInvalidSpec, "spec.publish.configMap.namespaces.selector is not a label selector: %s", err)
		}
		all := &metav1.PartialObjectMetadataList{}
		all.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "NamespaceList"})
		if err := in.Cluster.List(ctx, all, client.MatchingLabelsSelector{Selector: selector}); err != nil {
			return nil, fmt.Errorf("list the namespaces that spec.publish selects: %w", err)
		}
		for _, n := range all.Items {
			if n.DeletionTimestamp.IsZero() && !slices.Contains(namespaces, n.Name) {
				namespaces = append(namespaces, n.Name)
			}
		}
	}
	if len(namespaces) > maxPublished {
		return nil, connection.NewProblem(v1beta1.ReasonInvalidSpec,
			"spec.publish.configMap.namespaces: selects %d namespaces, but the limit is %d; select fewer, or use a clusterTrustBundle", len(namespaces), maxPublished)
	}
	slices.Sort(namespaces)
	return namespaces, nil
}

// publishedNames returns the names of publications outside of the object's own namespace. A grant must cover them.
func publishedNames(ctx context.Context, in reconcile.Input, obj *v1beta1.TrustedCA) (names []grants.Name, err error) {
	p := obj.Spec.Publish
	if p == nil || !obj.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	if p.ClusterTrustBundle != nil {
		return []grants.Name{{"publish/clusterTrustBundle/" + bundleName(obj)}}, nil
	}
	namespaces, err := publishedIn(ctx, in, obj)
	for _, namespace := range namespaces {
		if namespace != obj.Namespace {
			names = append(names, grants.Name{"publish/" + namespace + "/" + p.ConfigMap.Name})
		}
	}
	return names, err
}
