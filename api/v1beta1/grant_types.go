package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Grant allows objects of some namespaces to declare objects on a key server. A grant covers an object if it covers the
// namespace, the kind and every declared name of the object. Unless the object only observes, it must also cover every
// operation of the object. Grants do not add up: one grant has to cover all of this.
type Grant struct {
	// name is the name of the grant, for messages.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="must be lower-case letters, digits and '-'"
	// +required
	Name string `json:"name,omitempty"`

	// namespaces selects the namespaces whose objects the grant covers.
	// +required
	Namespaces GrantedNamespaces `json:"namespaces"`

	// kinds are the kinds of objects that the grant covers.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +required
	Kinds []GrantedKind `json:"kinds,omitempty"`

	// names are the names on the key server that the objects may declare. '*' matches any number of characters, so "*"
	// alone matches every name. The names of an object depend on its kind. Role: its name. ACLTemplate: its name, and
	// each of its directories with a '/' at the end. TrustedCA: its subject, or "sha256:" and its fingerprint; if it
	// publishes outside of its namespace, also "publish/NAMESPACE/NAME" of each ConfigMap, or
	// "publish/clusterTrustBundle/NAME". TrustedServer: its server name, or "id/" and its system id. PrincipalTrust:
	// its principal as TYPE/NAME, or "id/" and the id if the object has the id. Principal: TYPE/NAME, and "group/NAME"
	// of each of its groups. For a service account, also "xauth/system:serviceaccount:NAMESPACE:NAME" and, if an issuer
	// is given, "issuer/" and the issuer. Key: its path, or "key/NAMESPACE/NAME" without a path; if it takes over a
	// lineage, also "lineage/" and the hidden link.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	// +required
	Names []string `json:"names,omitempty"`

	// operations are the operations that the objects may grant. A Role grants its operations. A Principal grants all
	// operations of its roles and of the roles of its groups. An entry is the name of an operation ("HMAC Data"), its
	// id, or "duty:" and a duty for all operations of that duty ("duty:key use"). GET /api/operations lists them. If
	// the set is omitted, the objects may grant no operation.
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:items:XValidation:rule="self.trim() == self",message="must not begin or end with a space"
	// +kubebuilder:validation:items:XValidation:rule="!self.contains('*')",message="must be an operation or a duty, without '*'; to grant all, list duty:administration, duty:trust, duty:key use and duty:audit"
	// +kubebuilder:validation:items:XValidation:rule="!self.lowerAscii().startsWith('duty:') || self in ['duty:administration', 'duty:trust', 'duty:key use', 'duty:audit']",message="must be duty:administration, duty:trust, duty:key use or duty:audit"
	// +optional
	Operations []string `json:"operations,omitempty"`

	// adopt allows the objects to take over existing objects of the key server. Otherwise, they can only create new
	// ones.
	// +optional
	Adopt bool `json:"adopt,omitempty"`
}

// GrantedKind is a kind that a grant can cover: every kind except KeyServer.
// +kubebuilder:validation:Enum=ACLTemplate;Key;Principal;PrincipalTrust;Role;TrustedCA;TrustedServer
type GrantedKind string

// GrantedNamespaces selects namespaces by name or by label.
// +kubebuilder:validation:XValidation:rule="has(self.selector) || (has(self.names) && self.names.size() > 0)",message="give names, selector, or both; an empty selector selects every namespace"
type GrantedNamespaces struct {
	// names are the names of the namespaces.
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="must be the name of a namespace; for all of them, give an empty selector"
	// +optional
	Names []string `json:"names,omitempty"`
	// selector selects namespaces by label. An empty selector selects all namespaces.
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
