package v1beta1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Kind describes one kind of the API group.
// +kubebuilder:object:generate=false
type Kind struct {
	Name     string // as in manifests: "TrustedCA"
	Resource string // its plural, as in URLs and in roles: "trustedcas"
	New      func() Object
	NewList  func() List
}

// Object is an object of any kind.
// +kubebuilder:object:generate=false
type Object interface {
	metav1.Object
	runtime.Object
}

// List is a list of objects of one kind.
// +kubebuilder:object:generate=false
type List interface {
	metav1.ListInterface
	runtime.Object
}

// Kinds are all kinds of this group. All code that handles every kind uses this list: the scheme, the manager, the
// commands plan and export, docs/resources.md, and the tests of code that is written by hand for each kind. A kind
// comes after the kinds that it refers to.
var Kinds = []Kind{
	kind[KeyServer, KeyServerList]("KeyServer", "keyservers"),
	kind[TrustedCA, TrustedCAList]("TrustedCA", "trustedcas"),
	kind[TrustedServer, TrustedServerList]("TrustedServer", "trustedservers"),
	kind[PrincipalTrust, PrincipalTrustList]("PrincipalTrust", "principaltrusts"),
	kind[Role, RoleList]("Role", "roles"),
	kind[Principal, PrincipalList]("Principal", "principals"),
	kind[ACLTemplate, ACLTemplateList]("ACLTemplate", "acltemplates"),
	kind[Key, KeyList]("Key", "keys"),
}

func kind[T, L any, O interface {
	*T
	Object
}, A interface {
	*L
	List
}](name, resource string) Kind {
	return Kind{
		Name: name, Resource: resource,
		New:     func() Object { return O(new(T)) },
		NewList: func() List { return A(new(L)) },
	}
}

// KindNamed returns the kind with a name, or false if there is none.
func KindNamed(name string) (Kind, bool) {
	i := slices.IndexFunc(Kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return Kinds[i], true
}

// CRD returns the name of the kind's custom resource definition.
func (k Kind) CRD() string { return k.Resource + "." + GroupVersion.Group }

// Managed reports whether objects of the kind declare objects on a key server. A KeyServer only says how to reach the
// key server.
func (k Kind) Managed() bool {
	_, is := k.New().(interface {
		Managed() (*ManagedSpec, *ManagedStatus)
	})
	return is
}
