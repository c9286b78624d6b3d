package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TrustFlag says whether a peer knows a principal.
// +kubebuilder:validation:Enum=restrict;expose
type TrustFlag string

// The flags.
const (
	// Restrict hides the principal from the peer, and rejects the peer's principal with
	// that id.
	Restrict TrustFlag = "restrict"
	// Expose allows the principal to use keys of the peer.
	Expose TrustFlag = "expose"
)

// PrincipalTrustSpec declares whether one peer knows one principal.
// +kubebuilder:validation:XValidation:rule="has(self.trustedServerRef) != has(self.systemId)",message="give exactly one of trustedServerRef and systemId"
// +kubebuilder:validation:XValidation:rule="has(self.trustedServerRef) == has(oldSelf.trustedServerRef)",message="the peer cannot be changed; delete this object and create it again"
type PrincipalTrustSpec struct {
	ManagedSpec `json:",inline"`

	// principal is the principal that the flag applies to. It cannot be changed.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed; delete this object and create it again"
	// +required
	Principal PrincipalReference `json:"principal"`

	// trustedServerRef names the TrustedServer in this namespace that declares the peer. This object waits for that
	// TrustedServer, which is not deleted while this object exists. trustedServerRef cannot be changed.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed; delete this object and create it again"
	// +optional
	TrustedServerRef *TrustedServerReference `json:"trustedServerRef,omitempty"`

	// systemId is the system id of a peer without a TrustedServer in this namespace. It cannot be changed.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed; delete this object and create it again"
	// +optional
	SystemID *int64 `json:"systemId,omitempty"`

	// flag is restrict or expose. A peer knows a principal only if the principal or one of its groups is exposed.
	// restrict of the principal overrides expose of its groups.
	// +required
	Flag TrustFlag `json:"flag,omitempty"`
}

// PrincipalReference names a principal of the key server by its id, or by its type and
// name as in GET /api/principals.
// +structType=atomic
// +kubebuilder:validation:XValidation:rule="has(self.type) == has(self.name)",message="type and name belong together; give both or neither"
// +kubebuilder:validation:XValidation:rule="has(self.id) != has(self.name)",message="give exactly one of id, and type with name"
type PrincipalReference struct {
	// id is the id of the principal, 16 hexadecimal digits.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-fA-F]{16}$') && self != '0000000000000000'",message="must be the id of a principal: 16 hexadecimal digits, not all zero"
	// +optional
	ID *string `json:"id,omitempty"`
	// type is the type of the principal.
	// +optional
	Type *PrincipalType `json:"type,omitempty"`
	// name is the name of the principal. It must match exactly.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Name *string `json:"name,omitempty"`
}

// PrincipalType is the type of a principal. It says how the principal proves its identity.
// +kubebuilder:validation:Enum=password;certificate;ldap;xauth;group
type PrincipalType string

// TrustedServerReference names a TrustedServer of the same namespace.
// +structType=atomic
type TrustedServerReference struct {
	// name is the name of the TrustedServer.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a TrustedServer: lower-case letters, digits, '-' and '.'"
	// +required
	Name string `json:"name,omitempty"`
}

// PrincipalTrustStatus is the last known state of the principal trust on the key server.
type PrincipalTrustStatus struct {
	ManagedStatus `json:",inline"`

	// principalTrustId is the id of the principal trust, 16 hexadecimal digits.
	// +optional
	PrincipalTrustID string `json:"principalTrustId,omitempty"`
	// principalId is the id of the principal, 16 hexadecimal digits.
	// +optional
	PrincipalID string `json:"principalId,omitempty"`
	// systemId is the system id of the peer.
	// +optional
	SystemID *int64 `json:"systemId,omitempty"`
}

// PrincipalTrust declares whether a peer of a key server knows one principal.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,path=principaltrusts,shortName=ptrust,categories=trust
// +kubebuilder:selectablefield:JSONPath=`.spec.keyServerRef.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Verified",type=string,JSONPath=`.status.conditions[?(@.type=="Verified")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Principal",type=string,JSONPath=`.status.principalId`
// +kubebuilder:printcolumn:name="Peer",type=integer,JSONPath=`.status.systemId`
// +kubebuilder:printcolumn:name="Flag",type=string,JSONPath=`.spec.flag`
// +kubebuilder:printcolumn:name="KeyServer",type=string,JSONPath=`.spec.keyServerRef.name`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PrincipalTrust struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard metadata of all objects.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec declares whether one peer knows one principal.
	// +required
	Spec PrincipalTrustSpec `json:"spec,omitzero"`
	// status counts as older than the spec until the manager has processed the object.
	// +default={"observedGeneration":-1}
	// +optional
	Status PrincipalTrustStatus `json:"status,omitempty"`
}

// Managed returns the parts of the spec and the status that all kinds but KeyServer
// share.
func (t *PrincipalTrust) Managed() (*ManagedSpec, *ManagedStatus) {
	return &t.Spec.ManagedSpec, &t.Status.ManagedStatus
}

// PrincipalTrustList is a list of PrincipalTrusts.
//
// +kubebuilder:object:root=true
type PrincipalTrustList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PrincipalTrust `json:"items"`
}
