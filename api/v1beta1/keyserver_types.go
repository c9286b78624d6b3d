package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// KeyServerSpec says how to reach one key server, and which objects may use it.
type KeyServerSpec struct {
	// url is the address of the key server without /api, such as https://keyserver.example:8443. Plain http is accepted
	// for loopback addresses only.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="isURL(self) && (url(self).getScheme() == 'https' || (url(self).getScheme() == 'http' && url(self).getHostname() in ['localhost', '127.0.0.1', '::1', '[::1]']))",message="must be an https URL such as https://keyserver.example:8443; plain http is accepted for loopback addresses only"
	// +kubebuilder:validation:XValidation:rule="!isURL(self) || (url(self).getHostname() != '' && (url(self).getPort() == '' || (int(url(self).getPort()) > 0 && int(url(self).getPort()) < 65536)))",message="must have a host, and a port from 1 to 65535 if it has a port"
	// +kubebuilder:validation:XValidation:rule="!self.contains('@') && !self.contains('?') && !self.contains('#')",message="must not hold a user, a query or a fragment"
	// +kubebuilder:validation:XValidation:rule="!self.matches('/api/*$')",message="must not end in /api: give the URL without it"
	// +required
	URL string `json:"url,omitempty"`

	// externalURL is the key server's own URL (serve --external-url), if it differs from url. Proofs of possession
	// contain it. Password sessions are bound to a key only if externalURL is set.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() == 'https'",message="must be an https URL such as https://keyserver.example:8443"
	// +kubebuilder:validation:XValidation:rule="!isURL(self) || (url(self).getHostname() != '' && (url(self).getPort() == '' || (int(url(self).getPort()) > 0 && int(url(self).getPort()) < 65536)))",message="must have a host, and a port from 1 to 65535 if it has a port"
	// +kubebuilder:validation:XValidation:rule="!self.contains('@') && !self.contains('?') && !self.contains('#')",message="must not hold a user, a query or a fragment"
	// +kubebuilder:validation:XValidation:rule="!self.matches('/api/*$')",message="must not end in /api: give the URL without it"
	// +optional
	ExternalURL string `json:"externalURL,omitempty"`

	// caBundle has the PEM certificates that verify the key server's certificate. The default is the root certificates
	// of the system.
	// +optional
	CABundle *CABundle `json:"caBundle,omitempty"`

	// credentials are the identities that the manager logs in with.
	// +required
	Credentials KeyServerCredentials `json:"credentials"`

	// grants say what the objects of a namespace may declare about this key server. The manager uses the same
	// credentials for all objects, so nothing is allowed by default. If no grant covers an object, its reason is
	// AccessDenied, and the manager sends nothing to the key server for it.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Grants []Grant `json:"grants,omitempty"`

	// ownership names former clusters whose owner marks on the key server this cluster takes over.
	// +optional
	Ownership *Ownership `json:"ownership,omitempty"`
}

// CABundle is the source of the key server's CA certificates.
// +structType=atomic
// +kubebuilder:validation:XValidation:rule="[has(self.inline), has(self.secretKeyRef), has(self.configMapKeyRef)].filter(x, x).size() == 1",message="give exactly one of inline, secretKeyRef and configMapKeyRef"
type CABundle struct {
	// inline has one or more PEM certificates.
	// +kubebuilder:validation:MaxLength=262144
	// +kubebuilder:validation:XValidation:reason=FieldValueForbidden,rule="self.contains('-----BEGIN CERTIFICATE-----')",message="must hold at least one PEM block of type CERTIFICATE"
	// +kubebuilder:validation:XValidation:reason=FieldValueForbidden,rule="!self.contains('PRIVATE KEY')",message="must not hold a private key"
	// +optional
	Inline *string `json:"inline,omitempty"`
	// secretKeyRef names a key of a Secret, for example ca.crt.
	// +optional
	SecretKeyRef *NamespacedKeyReference `json:"secretKeyRef,omitempty"`
	// configMapKeyRef names a key of a ConfigMap, for example ca.crt.
	// +optional
	ConfigMapKeyRef *NamespacedKeyReference `json:"configMapKeyRef,omitempty"`
}

// KeyServerCredentials are the identities that the manager logs in as.
type KeyServerCredentials struct {
	// administrator manages roles and, unless duties are split, everything else.
	// +required
	Administrator AdministratorCredential `json:"administrator"`
	// securityOfficer manages trust if duties are split. The default is the administrator.
	// +optional
	SecurityOfficer *PasswordCredential `json:"securityOfficer,omitempty"`
}

// AdministratorCredential is a password principal, or the service account of the manager,
// which needs no password.
// +structType=atomic
// +kubebuilder:validation:XValidation:rule="has(self.secretRef) != has(self.serviceAccount)",message="give exactly one of secretRef and serviceAccount"
type AdministratorCredential struct {
	// secretRef names the Secret with the name and the password. A change of the Secret takes effect immediately.
	// +optional
	SecretRef *CredentialSecretReference `json:"secretRef,omitempty"`
	// serviceAccount makes the manager log in with a token of its service account. Each session is bound to a key that
	// the manager generates.
	// +optional
	ServiceAccount *ServiceAccountCredential `json:"serviceAccount,omitempty"`
}

// ServiceAccountCredential is the xauth principal of the manager's service account.
type ServiceAccountCredential struct {
	// audience is the audience of the token, one of serve --oidc-audience. The manager's --token-file must have a token
	// for it. Give each key server a different audience: a key server that receives a token can use it at every key
	// server that accepts its audience.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +required
	Audience string `json:"audience,omitempty"`
}

// PasswordCredential is a password principal.
type PasswordCredential struct {
	// secretRef names the Secret with the name and the password. A change of the Secret takes effect immediately.
	// +required
	SecretRef CredentialSecretReference `json:"secretRef,omitzero"`
}

// CredentialSecretReference names a Secret and its keys. The defaults are the
// keys of a Secret of type kubernetes.io/basic-auth.
// +structType=atomic
// +kubebuilder:validation:XValidation:rule="self.usernameKey != self.passwordKey",message="usernameKey and passwordKey must differ; give the key of the name and the key of the password"
type CredentialSecretReference struct {
	// namespace is the namespace of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="must be the name of a namespace: lower-case letters, digits and '-'"
	// +required
	Namespace string `json:"namespace,omitempty"`
	// name is the name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a Secret: lower-case letters, digits, '-' and '.'"
	// +required
	Name string `json:"name,omitempty"`
	// usernameKey is the key in the Secret whose value is the principal's name.
	// +default="username"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$')",message="must be a key of a Secret: letters, digits, '-', '_' and '.'"
	// +optional
	UsernameKey string `json:"usernameKey,omitempty"`
	// passwordKey is the key in the Secret whose value is the password. Line breaks at the end are not part of the
	// password.
	// +default="password"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$')",message="must be a key of a Secret: letters, digits, '-', '_' and '.'"
	// +optional
	PasswordKey string `json:"passwordKey,omitempty"`
}

// Ownership names former clusters whose owner marks on the key server this cluster takes over. A mark has the UID of
// the namespace kube-system of a cluster, and the namespace, kind and name of the object that declares the marked
// object.
type Ownership struct {
	// succeeds lists the UIDs of clusters that no longer exist and that this cluster replaces. An object of this
	// cluster takes over the external object that the object of the same namespace, kind and name owned in the old
	// cluster.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule="!format.uuid().validate(self).hasValue()",message="must be the UID of the namespace kube-system of a cluster, not the name of the cluster"
	// +listType=set
	// +required
	Succeeds []string `json:"succeeds"`
}

// KeyServerStatus is the last known state of the key server.
type KeyServerStatus struct {
	// conditions are Ready, ChangeFeed, TrailConsistent and, while they are true, Reconciling, Stalled, Paused and
	// LeftBehind. Later releases may add types and reasons: ignore an unknown type, and judge an unknown reason by the
	// status of its condition.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that the manager last processed. It does not change while the
	// object is paused.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// version is the version text that the key server reports.
	// +optional
	Version string `json:"version,omitempty"`
	// cursor is the position in the change feed when this status was last written. A new position alone causes no
	// write.
	// +optional
	Cursor int64 `json:"cursor,omitempty"`
	// auditKey verifies the checkpoints of the audit log. It is a public key in the format of C2SP signed-note. The key
	// does not change. Keep a copy in a place that others cannot change.
	// +optional
	AuditKey string `json:"auditKey,omitempty"`
	// auditCheckpoint is the checkpoint of the audit log (C2SP tlog-checkpoint) that was newest when the manager wrote
	// this field. The manager writes it at most once an hour.
	// +optional
	AuditCheckpoint *AuditCheckpoint `json:"auditCheckpoint,omitempty"`
	// lastHandledReconcileAt is the last value of the annotation trust.keyserver.dev/reconcile-requested-at that the
	// manager handled.
	// +optional
	LastHandledReconcileAt string `json:"lastHandledReconcileAt,omitempty"`
}

// AuditCheckpoint is a checkpoint of an audit log and the time at which it was read.
type AuditCheckpoint struct {
	// note is the checkpoint with its signatures.
	// +required
	Note string `json:"note"`
	// readAt is the time at which the manager read the checkpoint.
	// +required
	ReadAt metav1.Time `json:"readAt"`
}

// KeyServer is one service that implements the API of a key server (/api). Objects of all other kinds refer to it by
// name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=ks,categories=trust
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.url`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type KeyServer struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard metadata of all objects.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says how to reach one key server, and which objects may use it.
	// +required
	Spec KeyServerSpec `json:"spec,omitzero"`
	// status counts as older than the spec until the manager has processed the object.
	// +default={"observedGeneration":-1}
	// +optional
	Status KeyServerStatus `json:"status,omitempty"`
}

// KeyServerList is a list of KeyServers.
//
// +kubebuilder:object:root=true
type KeyServerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KeyServer `json:"items"`
}
