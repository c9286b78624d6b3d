package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// KeySpec declares one line of keys: a key and those that succeed it.
// +kubebuilder:validation:XValidation:rule="self.algorithm == oldSelf.algorithm",message="algorithm cannot be changed; delete this object and create it anew, or declare another key"
// +kubebuilder:validation:XValidation:rule="(has(self.exportable) && self.exportable) == (has(oldSelf.exportable) && oldSelf.exportable)",message="exportable cannot be changed: it is said when a key is minted, for good; delete this object and create it anew, or declare another key"
// +kubebuilder:validation:XValidation:rule="has(self.path) == has(oldSelf.path) && (!has(self.path) || self.path == oldSelf.path)",message="path cannot be changed, added or removed: it is said when a key is minted; delete this object and create it anew"
// +kubebuilder:validation:XValidation:rule="has(self.lineage) == has(oldSelf.lineage) && (!has(self.lineage) || self.lineage == oldSelf.lineage)",message="lineage cannot be changed, added or removed; delete this object and create it anew"
// +kubebuilder:validation:XValidation:rule="!has(self.path) || !has(self.lineage)",message="give path or lineage, not both: path is where a new key is minted, and lineage takes over one that is there"
type KeySpec struct {
	ManagedSpec `json:",inline"`

	// Algorithm of the keys: HMAC-SHA384 makes and verifies MACs, AES-256 encrypts
	// and decrypts. It cannot be changed.
	Algorithm KeyAlgorithm `json:"algorithm"`

	// Path is the place under a templated directory where the first key is minted:
	// the members of the nearest directory's ACL template get entries on it. Where
	// there is no directory yet, the object waits for one. It cannot be changed.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.matches('[[:cntrl:]]') && !self.matches('.//') && !self.matches('(^|/)[.][.]?(/|$)')",message="must be the plain path of a place: no segment is empty, '.' or '..', and there are no control characters"
	// +optional
	Path *string `json:"path,omitempty"`

	// Exportable lets owners of the keys take them out of the key server. It is false
	// where it is left out, though POST /api/keys takes it for true: what is declared
	// in Git is used where it lies, and a key that may leave cannot be called back. It
	// cannot be changed.
	// +kubebuilder:default=false
	// +optional
	Exportable bool `json:"exportable,omitempty"`

	// Lineage takes over a line that exists, by the hidden link of its first key, in
	// base64. Its algorithm and whether it is exportable have to be those that are
	// declared. It cannot be changed.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9+/]{16}$')",message="must be the hidden link of the first key of a line: 12 bytes as 16 characters of base64"
	// +optional
	Lineage *string `json:"lineage,omitempty"`

	// Members is the complete list of who has which rights on the keys, on every
	// generation that is not destroyed: who is taken out of it loses the rights on old
	// keys, too. The principal that the manager logs in as is OWNER of each key, whether
	// it is listed or not. Left out, nobody else has rights on a new key; with path or
	// lineage the lists of the keys are then left as they are. Server-side apply of an
	// emptied list leaves it out. Under server-side apply, several managers may each own
	// some of them.
	// +listType=map
	// +listMapKey=principal
	// +kubebuilder:validation:MaxItems=255
	// +optional
	Members []ACLTemplateMember `json:"members,omitzero"`

	// Rotation has the newest key succeeded by itself. Left out, no key is: a rotation
	// that somebody sets on the key server is taken away again.
	// +optional
	Rotation *KeyRotation `json:"rotation,omitempty"`

	// Publish tells workloads of the namespace which key to use.
	// +optional
	Publish *KeyPublication `json:"publish,omitempty"`

	// DestroyAfterDays is how long every key of the line can still be restored when
	// this object is deleted: the deletion schedules their destruction and never
	// destroys at once. 30 days where it is left out.
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=365
	// +optional
	DestroyAfterDays int32 `json:"destroyAfterDays,omitempty"`
}

// KeyAlgorithm is what a key is for.
// +kubebuilder:validation:Enum=HMAC-SHA384;AES-256
type KeyAlgorithm string

// The algorithms.
const (
	HMACSHA384 KeyAlgorithm = "HMAC-SHA384"
	AES256     KeyAlgorithm = "AES-256"
)

// KeyRotation says how the keys of a line follow each other.
// +kubebuilder:validation:XValidation:rule="(has(self.everyDays) && self.everyDays > 0) || (has(self.verifyOnlyDays) && self.verifyOnlyDays > 0)",message="give everyDays, verifyOnlyDays, or both; to have no rotation, leave rotation out"
// +kubebuilder:validation:XValidation:rule="!has(self.destroyAfterDays) || self.destroyAfterDays == 0 || (has(self.verifyOnlyDays) && self.verifyOnlyDays > 0)",message="destroyAfterDays needs verifyOnlyDays: it begins when a key has ceased to verify"
type KeyRotation struct {
	// EveryDays is the age at which the newest key is succeeded; 0 is never, so that
	// only POST /api/keys/rotate does it.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3650
	// +optional
	EveryDays int32 `json:"everyDays,omitempty"`
	// VerifyOnlyDays is for how long a former key goes on verifying MACs and
	// decrypting, and makes nothing any more; 0 is for ever.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3650
	// +optional
	VerifyOnlyDays int32 `json:"verifyOnlyDays,omitempty"`
	// DestroyAfterDays is how long after that its bytes go, during which it can be
	// restored; 0 is never, and it then goes on verifying.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=365
	// +optional
	DestroyAfterDays int32 `json:"destroyAfterDays,omitempty"`
}

// KeyPublication says where it is told which key to use.
type KeyPublication struct {
	// ConfigMap of this object's namespace, which the manager writes: hiddenLink (of
	// the newest key), lineage, generation, algorithm, url (of the key server) and,
	// where the KeyServer has a caBundle, ca.crt. None of it is a secret. It follows a
	// rotation, and is deleted with this object.
	ConfigMap ConfigMapTarget `json:"configMap"`
}

// ConfigMapTarget names a ConfigMap that the manager writes. One that exists and is
// not its own is left alone.
type ConfigMapTarget struct {
	// Name of the ConfigMap.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a ConfigMap: lower-case letters, digits, '-' and '.'"
	Name string `json:"name"`
}

// KeyStatus is what is known of the line of keys on the key server.
type KeyStatus struct {
	ManagedStatus `json:",inline"`

	// Lineage is the hidden link of the first key of the line, in base64. It is the
	// name of the line and never changes.
	// +optional
	Lineage string `json:"lineage,omitempty"`
	// HiddenLink is that of the newest key.
	// +optional
	HiddenLink string `json:"hiddenLink,omitempty"`
	// Generation of the newest key in the line, from 1.
	// +optional
	Generation *int32 `json:"generation,omitempty"`
	// State of the newest key: enabled, verifyOnly, disabled, destroying or destroyed.
	// +optional
	State string `json:"state,omitempty"`
	// MemberCount is the number of principals with rights on each key, the manager's
	// own included; empty where the lists are left as they are.
	// +optional
	MemberCount *int32 `json:"memberCount,omitempty"`
	// NextRotationTime is when the newest key is succeeded by itself.
	// +optional
	NextRotationTime *metav1.Time `json:"nextRotationTime,omitempty"`
	// Published is what the manager has written for this object in the cluster.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	// +optional
	Published []PublishedReference `json:"published,omitempty"`
}

// Key declares a line of keys: one that is minted, and those that succeed it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=kskey,categories=trust
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
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec KeySpec `json:"spec"`
	// Until the manager has been here, the status counts as behind the spec.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status KeyStatus `json:"status,omitempty"`
}

// Managed returns what the object shares with every other kind.
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
