package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RoleSpec declares one role and the complete set of its operations.
// +kubebuilder:validation:XValidation:rule="has(self.roleName) || has(self.roleId)",message="give roleName, or roleId to take over an existing role, or both"
// +kubebuilder:validation:XValidation:fieldPath=".roleId",rule="has(self.roleId) == has(oldSelf.roleId) && (!has(self.roleId) || self.roleId == oldSelf.roleId)",message="roleId cannot be changed, added or removed; delete this object and create it again"
type RoleSpec struct {
	ManagedSpec `json:",inline"`

	// roleName is the name of the role on the key server. A change renames the role: status.roleId stays, and
	// principals keep the role. With roleId it may be omitted; the name then stays unchanged.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.trim() == self && !self.matches('[[:cntrl:]]')",message="must not begin or end with a space or hold control characters"
	// +optional
	RoleName *string `json:"roleName,omitempty"`

	// roleId takes over the existing role with this id, 16 hexadecimal digits. It cannot be changed.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-fA-F]{16}$') && self != '0000000000000000'",message="must be the id of a role: 16 hexadecimal digits, not all zero"
	// +optional
	RoleID *string `json:"roleId,omitempty"`

	// operations is the complete set of operations that the role grants, each by its name ("HMAC Data") or its id (16
	// hexadecimal digits). GET /api/operations lists them. An empty or omitted set grants nothing, because server-side
	// apply omits an emptied set. Under server-side apply, several managers can each own some operations.
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:items:XValidation:rule="self.trim() == self",message="must not begin or end with a space"
	// +kubebuilder:validation:items:XValidation:rule="self != '*' && !self.startsWith('duty:')",message="must be the name or the id of one operation; only grants of a KeyServer can name a duty"
	// +default=[]
	// +optional
	Operations []string `json:"operations"`
}

// RoleStatus is the last known state of the role on the key server.
type RoleStatus struct {
	ManagedStatus `json:",inline"`

	// roleId is the id of the role, 16 hexadecimal digits.
	// +optional
	RoleID string `json:"roleId,omitempty"`
	// operationCount is the number of operations that the role grants.
	// +optional
	OperationCount *int32 `json:"operationCount,omitempty"`
}

// Role declares one role of a key server. In kubectl use its short name ksrole, because
// Kubernetes has another kind Role.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=ksrole,categories=trust
// +kubebuilder:selectablefield:JSONPath=`.spec.keyServerRef.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Verified",type=string,JSONPath=`.status.conditions[?(@.type=="Verified")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.status.roleId`
// +kubebuilder:printcolumn:name="Operations",type=integer,JSONPath=`.status.operationCount`
// +kubebuilder:printcolumn:name="KeyServer",type=string,JSONPath=`.spec.keyServerRef.name`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Role struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard metadata of all objects.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec declares one role and the complete set of its operations.
	// +required
	Spec RoleSpec `json:"spec"`
	// status counts as older than the spec until the manager has processed the object.
	// +default={"observedGeneration":-1}
	// +optional
	Status RoleStatus `json:"status,omitempty"`
}

// Managed returns the parts of the spec and the status that all kinds but KeyServer
// share.
func (r *Role) Managed() (*ManagedSpec, *ManagedStatus) {
	return &r.Spec.ManagedSpec, &r.Status.ManagedStatus
}

// RoleList is a list of Roles.
//
// +kubebuilder:object:root=true
type RoleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Role `json:"items"`
}
