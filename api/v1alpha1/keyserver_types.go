package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// KeyServerSpec says how to reach one /api and who may use it.
type KeyServerSpec struct {
	// URL of the service, without /api: https://keyserver.example:8443. Plain
	// http is accepted for loopback addresses only.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="isURL(self) && (url(self).getScheme() == 'https' || (url(self).getScheme() == 'http' && url(self).getHostname() in ['localhost', '127.0.0.1', '::1', '[::1]']))",message="must be an https URL such as https://keyserver.example:8443; plain http is accepted for loopback addresses only"
	// +kubebuilder:validation:XValidation:rule="!self.contains('@') && !self.contains('?') && !self.contains('#')",message="must not hold a user, a query or a fragment"
	// +kubebuilder:validation:XValidation:rule="!self.matches('/api/*$')",message="must not end in /api: give the URL that is before it"
	URL string `json:"url"`

	// ExternalURL is the URL by which the service knows itself (serve
	// --external-url), where that is another than url. Proofs of possession are
	// made for it; sessions of a password are bound to a key only where it is set.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() == 'https'",message="must be an https URL such as https://keyserver.example:8443"
	// +kubebuilder:validation:XValidation:rule="!self.contains('@') && !self.contains('?') && !self.contains('#')",message="must not hold a user, a query or a fragment"
	// +kubebuilder:validation:XValidation:rule="!self.matches('/api/*$')",message="must not end in /api: give the URL that is before it"
	// +optional
	ExternalURL string `json:"externalURL,omitempty"`

	// CABundle holds the PEM certificates that the service's own certificate
	// is checked against. Without it the system's roots are used.
	// +optional
	CABundle *CABundle `json:"caBundle,omitempty"`

	// Credentials the manager logs in with.
	Credentials KeyServerCredentials `json:"credentials"`

	// Grants say whose objects may declare what about this key server. An object
	// acts with the credentials above, so that nothing is allowed by omission: what
	// no grant covers is AccessDenied, and nothing is sent to the key server for it.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Grants []Grant `json:"grants,omitempty"`

	// Ownership says whose marks on the key server this cluster takes over.
	// +optional
	Ownership *Ownership `json:"ownership,omitempty"`
}

// CABundle is where the certificates of the service's CA come from.
// +kubebuilder:validation:XValidation:rule="[has(self.inline), has(self.secretKeyRef), has(self.configMapKeyRef)].filter(x, x).size() == 1",message="give exactly one of inline, secretKeyRef and configMapKeyRef"
type CABundle struct {
	// Inline holds one or more PEM certificates.
	// +kubebuilder:validation:MaxLength=262144
	// +kubebuilder:validation:XValidation:reason=FieldValueForbidden,rule="self.contains('-----BEGIN CERTIFICATE-----')",message="must hold at least one PEM block of type CERTIFICATE"
	// +kubebuilder:validation:XValidation:reason=FieldValueForbidden,rule="!self.contains('PRIVATE KEY')",message="must not hold a private key"
	// +optional
	Inline *string `json:"inline,omitempty"`
	// SecretKeyRef names the key of a Secret, for instance ca.crt.
	// +optional
	SecretKeyRef *NamespacedKeyReference `json:"secretKeyRef,omitempty"`
	// ConfigMapKeyRef names the key of a ConfigMap, for instance ca.crt.
	// +optional
	ConfigMapKeyRef *NamespacedKeyReference `json:"configMapKeyRef,omitempty"`
}

// KeyServerCredentials are the identities the manager acts as.
type KeyServerCredentials struct {
	// Administrator manages roles, and everything else in a unified deployment.
	Administrator AdministratorCredential `json:"administrator"`
	// SecurityOfficer manages trust where duties are split. Without it the
	// administrator does.
	// +optional
	SecurityOfficer *PasswordCredential `json:"securityOfficer,omitempty"`
}

// AdministratorCredential is a password principal, or the manager's own service
// account, which needs no password.
// +kubebuilder:validation:XValidation:rule="has(self.secretRef) != has(self.serviceAccount)",message="give exactly one of secretRef and serviceAccount"
type AdministratorCredential struct {
	// SecretRef names the Secret that holds name and password. A change of the
	// Secret takes effect at once.
	// +optional
	SecretRef *CredentialSecretReference `json:"secretRef,omitempty"`
	// ServiceAccount has the manager log in with a token of its own service
	// account. Each session is bound to a key that the manager draws.
	// +optional
	ServiceAccount *ServiceAccountCredential `json:"serviceAccount,omitempty"`
}

// ServiceAccountCredential is the xauth principal of the manager's service account.
type ServiceAccountCredential struct {
	// Audience of the token, one of those of serve --oidc-audience. The manager
	// has a token for it in the file that its --token-file names. Give each key
	// server an audience of its own: whoever is shown a token can use it wherever
	// its audience is taken.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Audience string `json:"audience"`
}

// PasswordCredential is a password principal.
type PasswordCredential struct {
	// SecretRef names the Secret that holds name and password. A change of the
	// Secret takes effect at once.
	SecretRef CredentialSecretReference `json:"secretRef"`
}

// CredentialSecretReference names a Secret and its keys. The defaults are the
// keys of a Secret of type kubernetes.io/basic-auth.
type CredentialSecretReference struct {
	// Namespace of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// UsernameKey is the key that holds the principal's name.
	// +kubebuilder:default=username
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	UsernameKey string `json:"usernameKey,omitempty"`
	// PasswordKey is the key that holds the password. Line breaks at its end
	// do not belong to it.
	// +kubebuilder:default=password
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	PasswordKey string `json:"passwordKey,omitempty"`
}

// Ownership says whose marks on the key server this cluster takes over. A mark names
// who owns an object there: the UID of a cluster's namespace kube-system, and the
// namespace, kind and name of the object that declares it.
type Ownership struct {
	// Succeeds are UIDs of clusters that are gone, and in whose place this one
	// declares the same: what an object of the same namespace, kind and name owned
	// there, the one here owns.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +listType=set
	Succeeds []string `json:"succeeds"`
}

// KeyServerStatus is what the manager knows of the service.
type KeyServerStatus struct {
	// ObservedGeneration is the generation of the spec that the conditions are about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Ready, ChangeFeed, TrailConsistent and, while they hold, Reconciling, Stalled and LeftBehind.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Version is the banner of the key server.
	// +optional
	Version string `json:"version,omitempty"`
	// Cursor is how far the change feed had been followed when this status was
	// last written. It is not written for its own sake.
	// +optional
	Cursor int64 `json:"cursor,omitempty"`
	// AuditKey verifies the checkpoints of the audit trail, as C2SP signed-note spells a
	// public key. It does not change; note it where nobody can change it.
	// +optional
	AuditKey string `json:"auditKey,omitempty"`
	// AuditCheckpoint is a checkpoint of the audit trail (C2SP tlog-checkpoint), the
	// newest one when it was written, which is at most once an hour.
	// +optional
	AuditCheckpoint *AuditCheckpoint `json:"auditCheckpoint,omitempty"`
	// LastHandledReconcileAt is the last value of the annotation
	// trust.keyserver.dev/reconcile-requested-at that was acted upon.
	// +optional
	LastHandledReconcileAt string `json:"lastHandledReconcileAt,omitempty"`
}

// AuditCheckpoint is how far an audit trail had grown at a time.
type AuditCheckpoint struct {
	// Note is the checkpoint with its signatures.
	Note string `json:"note"`
	// ReadAt is when it was read.
	ReadAt metav1.Time `json:"readAt"`
}

// KeyServer is one service that honours the /api contract. All other kinds
// refer to it by name.
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
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec KeyServerSpec `json:"spec"`
	// Until the manager has been here, the status counts as behind the spec.
	// +kubebuilder:default:={"observedGeneration":-1}
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
