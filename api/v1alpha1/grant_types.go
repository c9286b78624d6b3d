package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Grant allows objects of some namespaces to declare something about a key server. A
// grant covers an object if it covers its namespace, its kind, every name that it
// declares and, unless it only observes, every operation. Grants do not add up: a single
// one has to cover all of this.
type Grant struct {
	// Name of the grant, for messages.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="must be lower-case letters, digits and '-'"
	Name string `json:"name"`

	// Namespaces whose objects the grant covers.
	Namespaces GrantedNamespaces `json:"namespaces"`

	// Kinds of objects that the grant covers.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Kinds []GrantedKind `json:"kinds"`

	// Names on the key server that the objects may declare. '*' matches any number of
	// characters, so "*" alone matches every name. The names of an object depend on its
	// kind. Role: its name. ACLTemplate: its name, and each of its directories with a '/'
	// at the end. TrustedCA: its subject, or "sha256:" and its fingerprint; if it
	// publishes outside of its namespace, also "publish/NAMESPACE/NAME" of each
	// ConfigMap, or "publish/clusterTrustBundle/NAME". TrustedServer: its server name, or
	// "id/" and its system id. PrincipalTrust: its principal as TYPE/NAME, or "id/" and
	// the id if the object has the id. Principal: TYPE/NAME; for a service account also
	// "xauth/system:serviceaccount:NAMESPACE:NAME" and, if an issuer is given, "issuer/"
	// and the issuer; "group/NAME" of each of its groups. Key: its path, or
	// "key/NAMESPACE/NAME" without a path; if it takes over a lineage, also "lineage/"
	// and the hidden link.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	Names []string `json:"names"`

	// Operations that the objects may grant: those of a Role, and all those that a
	// Principal gets from its roles and from the roles of its groups. An entry is the
	// name of an operation ("HMAC Data"), its id, or "duty:" and a duty for all
	// operations of that duty ("duty:key use"). GET /api/operations lists them. If the
	// set is omitted, the objects may grant no operation.
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:items:XValidation:rule="self != '*'",message="must be an operation or a duty; to grant all, list duty:administration, duty:trust, duty:key use and duty:audit"
	// +kubebuilder:validation:items:XValidation:rule="!self.startsWith('duty:') || self in ['duty:administration', 'duty:trust', 'duty:key use', 'duty:audit']",message="must be duty:administration, duty:trust, duty:key use or duty:audit"
	// +optional
	Operations []string `json:"operations,omitempty"`

	// Adopt allows the objects to take over what already exists on the key server.
	// Without it, they can only create.
	// +optional
	Adopt bool `json:"adopt,omitempty"`
}

// GrantedKind is a kind whose objects declare something about a key server.
// +kubebuilder:validation:Enum=ACLTemplate;Key;Principal;PrincipalTrust;Role;TrustedCA;TrustedServer
type GrantedKind string

// GrantedNamespaces selects namespaces by name or by label.
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
	// Selector selects namespaces by label. An empty selector selects all.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// GrantAll returns a grant of everything to the given namespaces.
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
