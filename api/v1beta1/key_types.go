package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// KeySpec declares one key lineage: a key and its successors.
// +kubebuilder:validation:XValidation:fieldPath=".algorithm",rule="self.algorithm == oldSelf.algorithm",message="algorithm cannot be changed; delete this object and create it again, or declare another key"
// +kubebuilder:validation:XValidation:fieldPath=".exportable",rule="(has(self.exportable) && self.exportable) == (has(oldSelf.exportable) && oldSelf.exportable)",message="exportable cannot be changed: it is set when a key is created; delete this object and create it again, or declare another key"
// +kubebuilder:validation:XValidation:fieldPath=".path",rule="has(self.path) == has(oldSelf.path) && (!has(self.path) || self.path == oldSelf.path)",message="path cannot be changed, added or removed: it is set when a key is created; delete this object and create it again"
// +kubebuilder:validation:XValidation:fieldPath=".lineage",rule="has(self.lineage) == has(oldSelf.lineage) && (!has(self.lineage) || self.lineage == oldSelf.lineage)",message="lineage cannot be changed, added or removed; delete this object and create it again"
// +kubebuilder:validation:XValidation:rule="!has(self.path) || !has(self.lineage)",message="give path or lineage, not both: path creates a new key, and lineage takes over an existing one"
type KeySpec struct {
	ManagedSpec `json:",inline"`

	// algorithm is the algorithm of the keys: HMAC-SHA384 creates and verifies MACs, AES-256 encrypts and decrypts. It
	// cannot be changed.
	// +required
	Algorithm KeyAlgorithm `json:"algorithm,omitempty"`

	// path is where the first key is created, under a templated directory. The members of the ACL template of the
	// nearest templated directory get ACL entries on the key. If there is no such directory yet, the object waits for
	// one. path cannot be changed.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.matches('[[:cntrl:]]') && !self.matches('.//') && !self.matches('(^|/)[.][.]?(/|$)')",message="must be a plain path: no segment is empty, '.' or '..', and there are no control characters"
	// +optional
	Path *string `json:"path,omitempty"`

	// exportable allows owners of the keys to export them from the key server. The default is false, unlike in POST
	// /api/keys: declared keys are used on the key server, and an export cannot be undone. exportable cannot be
	// changed.
	// +default=false
	// +optional
	Exportable bool `json:"exportable,omitempty"`

	// lineage takes over an existing key lineage. Its value is the hidden link of the first key in base64. algorithm
	// and exportable must be those of the existing keys. lineage cannot be changed.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9+/]{16}$')",message="must be the hidden link of the first key of a lineage: 12 bytes as 16 characters of base64"
	// +optional
	Lineage *string `json:"lineage,omitempty"`

	// members is the complete list of principals with rights on the keys. It applies to every generation that is not
	// destroyed: a principal that is removed from the list also loses its rights on old keys. The principal that the
	// manager logs in as is OWNER of each key, whether it is listed or not. If members is omitted, no other principal
	// has rights on a new key; but if path or lineage is set, the ACLs of the keys stay unchanged. Server-side apply
	// omits an emptied list. Under server-side apply, several managers can each own some members.
	// +listType=map
	// +listMapKey=principal
	// +kubebuilder:validation:MaxItems=255
	// +optional
	Members []ACLTemplateMember `json:"members,omitzero"`

	// rotation rotates the lineage automatically. If it is omitted, no key is rotated automatically: the manager
	// removes a rotation that is set on the key server.
	// +optional
	Rotation *KeyRotation `json:"rotation,omitempty"`

	// publish tells workloads of the namespace which key to use.
	// +optional
	Publish *KeyPublication `json:"publish,omitempty"`

	// destroyAfterDays is the number of days in which each key of the lineage can be restored after this object is
	// deleted. The deletion schedules the destruction of the keys, and never destroys them immediately. The default is
	// 30 days.
	// +default=30
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=365
	// +optional
	DestroyAfterDays int32 `json:"destroyAfterDays,omitempty"`
}

// KeyAlgorithm says what a key is used for.
// +kubebuilder:validation:Enum=HMAC-SHA384;AES-256
type KeyAlgorithm string

// The algorithms.
const (
	HMACSHA384 KeyAlgorithm = "HMAC-SHA384"
	AES256     KeyAlgorithm = "AES-256"
)

// KeyRotation says when the lineage is rotated, and what happens to its older keys. Zeros have the same meaning as in
// PUT /api/keys/rotation (contract 7.17).
// +kubebuilder:validation:XValidation:rule="(has(self.everyDays) && self.everyDays > 0) || (has(self.verifyOnlyDays) && self.verifyOnlyDays > 0)",message="give everyDays, verifyOnlyDays, or both; to have no rotation, leave rotation out"
// +kubebuilder:validation:XValidation:fieldPath=".destroyAfterDays",rule="!has(self.destroyAfterDays) || self.destroyAfterDays == 0 || (has(self.verifyOnlyDays) && self.verifyOnlyDays > 0)",message="destroyAfterDays needs verifyOnlyDays, because it begins when a key stops verifying; give both"
type KeyRotation struct {
	// everyDays is the age in days at which the newest key is rotated. If it is 0, only POST /api/keys/rotate rotates
	// the key.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3650
	// +optional
	EveryDays int32 `json:"everyDays,omitempty"`
	// verifyOnlyDays is the number of days in which an older key still verifies MACs and decrypts. It creates no MACs
	// and encrypts nothing. If verifyOnlyDays or destroyAfterDays is 0, this time does not end.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3650
	// +optional
	VerifyOnlyDays int32 `json:"verifyOnlyDays,omitempty"`
	// destroyAfterDays is the number of days from the end of verifyOnlyDays until the bytes of the older key are
	// destroyed. Until then the key can be restored. 0 means never: the key then verifies and decrypts without an end.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=365
	// +optional
	DestroyAfterDays int32 `json:"destroyAfterDays,omitempty"`
}

// KeyPublication says where the identifiers of the key are published.
type KeyPublication struct {
	// configMap names a ConfigMap in this namespace. The manager writes hiddenLink (of the newest key), lineage,
	// generation, algorithm and url (of the key server). If the KeyServer has a caBundle, the manager also writes
	// ca.crt. None of these values is secret. The manager updates the ConfigMap after a rotation, and deletes it with
	// this object.
	// +required
	ConfigMap ConfigMapTarget `json:"configMap,omitzero"`
}

// ConfigMapTarget names a ConfigMap that the manager writes. The manager does not change
// an existing ConfigMap of another owner.
type ConfigMapTarget struct {
	// name is the name of the ConfigMap.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a ConfigMap: lower-case letters, digits, '-' and '.'"
	// +required
	Name string `json:"name,omitempty"`
}

// KeyStatus is the last known state of the key lineage on the key server.
type KeyStatus struct {
	ManagedStatus `json:",inline"`

	// lineage is the hidden link of the first key, in base64. It identifies the lineage and never changes.
	// +optional
	Lineage string `json:"lineage,omitempty"`
	// hiddenLink is the hidden link of the newest key.
	// +optional
	HiddenLink string `json:"hiddenLink,omitempty"`
	// generation is the generation of the newest key in the lineage, beginning with 1.
	// +optional
	Generation *int32 `json:"generation,omitempty"`
	// state is the state of the newest key: enabled, verifyOnly, disabled, destroying or destroyed. A newer key server
	// may have other states.
	// +optional
	State string `json:"state,omitempty"`
	// memberCount is the number of principals with rights on each key, including the manager's principal. It is empty
	// if the object does not manage the ACLs.
	// +optional
	MemberCount *int32 `json:"memberCount,omitempty"`
	// nextRotationTime is when the newest key is rotated automatically.
	// +optional
	NextRotationTime *metav1.Time `json:"nextRotationTime,omitempty"`
	// published lists the objects that the manager has written in the cluster for this object.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	// +optional
	Published []PublishedReference `json:"published,omitempty"`
}

// Key declares a key lineage: a first key and its successors.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=kskey,categories=trust
// +kubebuilder:selectablefield:JSONPath=`.spec.keyServerRef.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Verified",type=string,JSONPath=`.status.conditions[?(@.type=="Verified")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Algorithm",type=string,JSONPath=`.spec.algorithm`
// +kubebuilder:printcolumn:name="Generation",type=integer,JSONPath=`.status.generation`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Lineage",type=string,JSONPath=`.status.lineage`,priority=1
// +kubebuilder:printcolumn:name="Rotates",type=string,JSONPath=`.status.nextRotationTime`,priority=1
// +kubebuilder:printcolumn:name="KeyServer",type=string,JSONPath=`.spec.keyServerRef.name`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Key struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard metadata of all objects.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec declares one key lineage: a key and its successors.
	// +required
	Spec KeySpec `json:"spec,omitzero"`
	// status counts as older than the spec until the manager has processed the object.
	// +default={"observedGeneration":-1}
	// +optional
	Status KeyStatus `json:"status,omitempty"`
}

// Managed returns the parts of the spec and the status that all kinds but KeyServer
// share.
func (k *Key) Managed() (*ManagedSpec, *ManagedStatus) {
	return &k.Spec.ManagedSpec, &k.Status.ManagedStatus
}

// KeyList is a list of Keys.
//
// +kubebuilder:object:root=true
type KeyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Key `json:"items"`
}
