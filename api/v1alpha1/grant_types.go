package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Grant lets objects of some namespaces declare something about a key server. An
// object is within a grant if the grant covers its namespace, its kind, every
// name that it declares and, unless it only observes, every operation. Grants do
// not add up: one of them has to cover all of it.
type Grant struct {
	// Name of the grant, by which messages call it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="must be lower-case letters, digits and '-'"
	Name string `json:"name"`

	// Namespaces whose objects it is for.
	Namespaces GrantedNamespaces `json:"namespaces"`

	// Kinds that the objects may be of.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Kinds []GrantedKind `json:"kinds"`

	// Names that the objects may stand for on the key server; '*' stands for any
	// characters, or none, and "*" alone for every name. It is the name of a Role;
	// the name of an ACLTemplate and each of its directories, with a '/' at the
	// end; the subject of a TrustedCA or "sha256:" and its fingerprint, and where it
	// publishes outside of its namespace "publish/NAMESPACE/NAME" of the ConfigMap or
	// "publish/clusterTrustBundle/NAME"; the server
	// name of a TrustedServer or "id/" and its system id; the principal of a
	// PrincipalTrust, as TYPE/NAME, or "id/" and its id where it is given by that; the
	// principal of a Principal as TYPE/NAME, of a service account both by its name and
	// by "xauth/system:serviceaccount:NAMESPACE:NAME", and "issuer/" and the issuer
	// where that is given; the path of a Key, or "key/NAMESPACE/NAME" where it has
	// none, and "lineage/" and the hidden link where it takes over a line.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	Names []string `json:"names"`

	// Operations that the objects may hand out: those of a Role, and of a Principal all
	// that its roles and the roles of its groups grant. Each by its name
	// ("HMAC Data") or its id, or all of a duty by "duty:" and the duty, as GET
	// /api/operations lists them: "duty:key use". Left out, they may hand out none.
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:items:XValidation:rule="self != '*'",message="must be an operation or a duty; to give all, list duty:administration, duty:trust, duty:key use and duty:audit"
	// +kubebuilder:validation:items:XValidation:rule="!self.startsWith('duty:') || self in ['duty:administration', 'duty:trust', 'duty:key use', 'duty:audit']",message="must be duty:administration, duty:trust, duty:key use or duty:audit"
	// +optional
	Operations []string `json:"operations,omitempty"`

	// Adopt lets the objects take over what is on the key server already. Without
	// it they only have what they make themselves.
	// +optional
	Adopt bool `json:"adopt,omitempty"`
}

// GrantedKind is a kind whose objects declare something about a key server.
// +kubebuilder:validation:Enum=ACLTemplate;Key;Principal;PrincipalTrust;Role;TrustedCA;TrustedServer
type GrantedKind string

// GrantedNamespaces are namespaces that are listed or selected.
// +kubebuilder:validation:XValidation:rule="has(self.selector) || (has(self.names) && self.names.size() > 0)",message="give names, selector, or both; an empty selector selects every namespace"
type GrantedNamespaces struct {
	// Names of namespaces.
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="must be the name of a namespace; for all of them, give an empty selector"
	// +optional
	Names []string `json:"names,omitempty"`
	// Selector picks namespaces by label. An empty selector picks all.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// GrantAll returns a grant of everything to some namespaces.
func GrantAll(name string, to GrantedNamespaces) Grant {
	g := Grant{
		Name: name, Namespaces: to, Names: []string{"*"}, Adopt: true,
		Operations: []string{"duty:administration", "duty:trust", "duty:key use", "duty:audit"},
	}
	for _, k := range Kinds {
		if k.Managed() {
			g.Kinds = append(g.Kinds, GrantedKind(k.Name))
		}
	}
	return g
}
