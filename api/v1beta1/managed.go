package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ManagementPolicy says whether the manager may write to the key server.
// +kubebuilder:validation:Enum=Manage;Observe
type ManagementPolicy string

// The management policies.
const (
	// Manage writes until the key server agrees with the declaration.
	Manage ManagementPolicy = "Manage"
	// Observe writes nothing, and lists the differences in status.drift.
	Observe ManagementPolicy = "Observe"
)

// AdoptionPolicy says what happens if the external object already exists.
// +kubebuilder:validation:Enum=IfIdentical;Always;Never
type AdoptionPolicy string

// The adoption policies.
const (
	// AdoptIfIdentical takes over an existing object only if nothing has to be changed.
	AdoptIfIdentical AdoptionPolicy = "IfIdentical"
	// AdoptAlways takes over an existing object and corrects it.
	AdoptAlways AdoptionPolicy = "Always"
	// AdoptNever leaves an existing object unchanged and reports a Conflict.
	AdoptNever AdoptionPolicy = "Never"
)

// DeletionPolicy says what happens to the external object when this object is deleted.
// +kubebuilder:validation:Enum=DeleteIfCreated;Delete;Retain
type DeletionPolicy string

// The deletion policies.
const (
	// DeleteIfCreated deletes an external object that this object created, and keeps an adopted one.
	DeleteIfCreated DeletionPolicy = "DeleteIfCreated"
	// DeleteExternal deletes created and adopted objects.
	DeleteExternal DeletionPolicy = "Delete"
	// RetainExternal keeps created and adopted objects.
	RetainExternal DeletionPolicy = "Retain"
)

// Provenance says whether this object created or adopted its external object.
// +kubebuilder:validation:Enum=Created;Adopted
type Provenance string

// The provenances.
const (
	Created Provenance = "Created"
	Adopted Provenance = "Adopted"
)

// KeyServerReference names a KeyServer. KeyServers are cluster-scoped.
// +structType=atomic
type KeyServerReference struct {
	// name is the name of the KeyServer.
	// +default="default"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a KeyServer: lower-case letters, digits, '-' and '.'"
	// +optional
	Name string `json:"name,omitempty"`
}

// ManagedSpec is the part of the spec that all kinds but KeyServer share.
type ManagedSpec struct {
	// keyServerRef names the KeyServer of this object. It cannot be changed, because the manager would no longer manage
	// the external object on the old key server.
	// +default={"name": "default"}
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed; delete this object and create it again for the other KeyServer"
	// +optional
	KeyServerRef KeyServerReference `json:"keyServerRef,omitzero"`

	// managementPolicy is Manage to make the key server agree with this object, or Observe to write nothing and report
	// differences in status.drift.
	// +default="Manage"
	// +optional
	ManagementPolicy ManagementPolicy `json:"managementPolicy,omitempty"`

	// adoptionPolicy says what to do if the external object (on the key server) already exists. IfIdentical takes it
	// over only if nothing has to be changed. Always takes it over and corrects it. The value Never leaves it unchanged
	// and reports a Conflict.
	// +default="IfIdentical"
	// +optional
	AdoptionPolicy AdoptionPolicy `json:"adoptionPolicy,omitempty"`

	// deletionPolicy says what happens to the external object when this object is deleted. DeleteIfCreated deletes it
	// if this object created it, and keeps an adopted one. Delete deletes it, and Retain keeps it.
	// +default="DeleteIfCreated"
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// resyncInterval is the longest time between two reads of the key server for this object. The change feed normally
	// shows changes by other clients within a second; this interval is the fallback. Up to a tenth is added at random.
	// From 5s to 24h.
	// +default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}([.][0-9]+)?h|[0-9]{1,7}([.][0-9]+)?m|[0-9]{1,9}([.][0-9]+)?m?s)+$') && duration(self) >= duration('5s') && duration(self) <= duration('24h')",message="must be a duration from 5s to 24h, such as 30s, 10m or 1h30m"
	// +optional
	ResyncInterval *metav1.Duration `json:"resyncInterval,omitempty"`
}

// ManagedStatus is the part of the status that all kinds but KeyServer share.
type ManagedStatus struct {
	// conditions are Ready, Verified and, while they are true, Reconciling, Stalled, Paused and Expiring. Later releases
	// may add types and reasons: ignore an unknown type, and judge an unknown reason by the status of its condition.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that the manager last processed. It does not change while the
	// object is paused.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// provenance is Created if this object created the external object, or Adopted if the external object existed
	// before. It is empty if there is no external object, or if managementPolicy is Observe.
	// +optional
	Provenance Provenance `json:"provenance,omitempty"`

	// lastVerifiedTime is when the key server was last read again after a change on either side or a requested
	// reconcile. If the KeyServer is Ready and its condition ChangeFeed is true, nothing has changed since. A read that
	// finds no change is not recorded, so that an unchanged object causes no write.
	// +optional
	LastVerifiedTime *metav1.Time `json:"lastVerifiedTime,omitempty"`

	// drift lists the differences between the key server and the declaration. If managementPolicy is Manage, the
	// manager corrects them. If it is Observe, they stay.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Drift []FieldDrift `json:"drift,omitempty"`

	// lastHandledReconcileAt is the last value of the annotation trust.keyserver.dev/reconcile-requested-at that the
	// manager handled.
	// +optional
	LastHandledReconcileAt string `json:"lastHandledReconcileAt,omitempty"`
}

// FieldDrift is one difference between the declaration and the key server.
type FieldDrift struct {
	// field is the field of the spec that differs.
	// +required
	Field string `json:"field"`
	// declared is the value in the spec.
	// +required
	Declared string `json:"declared"`
	// observed is the value on the key server.
	// +required
	Observed string `json:"observed"`
}

// PublishedReference names an object of the cluster that the manager has written.
type PublishedReference struct {
	// apiVersion is the API version of the object.
	// +required
	APIVersion string `json:"apiVersion"`
	// kind is the kind of the object.
	// +required
	Kind string `json:"kind"`
	// namespace is the namespace of the object, empty if its kind has none.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// name is the name of the object.
	// +required
	Name string `json:"name"`
}

// String names the object for messages.
func (r PublishedReference) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// NamespacedKeyReference names one key of a Secret or ConfigMap in any namespace.
// +structType=atomic
type NamespacedKeyReference struct {
	// namespace is the namespace of the Secret or ConfigMap.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="must be the name of a namespace: lower-case letters, digits and '-'"
	// +required
	Namespace string `json:"namespace,omitempty"`
	// name is the name of the Secret or ConfigMap.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a Secret or ConfigMap: lower-case letters, digits, '-' and '.'"
	// +required
	Name string `json:"name,omitempty"`
	// key is the key in the Secret or ConfigMap.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$')",message="must be a key of a Secret or ConfigMap: letters, digits, '-', '_' and '.'"
	// +required
	Key string `json:"key,omitempty"`
}

// PeerReference names a KeyServer that is the peer of another one. The manager queries the peer with the credentials of
// the named KeyServer, which must have a grant for the namespace of the object; any grant is enough.
// +structType=atomic
type PeerReference struct {
	// name is the name of the KeyServer.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a KeyServer: lower-case letters, digits, '-' and '.'"
	// +required
	Name string `json:"name,omitempty"`
}

// LocalKeyReference names one key of a Secret or ConfigMap in the namespace of
// the object that refers to it.
// +structType=atomic
type LocalKeyReference struct {
	// name is the name of the Secret or ConfigMap.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a Secret or ConfigMap: lower-case letters, digits, '-' and '.'"
	// +required
	Name string `json:"name,omitempty"`
	// key is the key in the Secret or ConfigMap.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$')",message="must be a key of a Secret or ConfigMap: letters, digits, '-', '_' and '.'"
	// +required
	Key string `json:"key,omitempty"`
}
