package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TrustedServerSpec declares that another key server is registered as a peer.
// +kubebuilder:validation:XValidation:fieldPath=".trustBlob.peerRef",rule="!has(self.trustBlob.peerRef) || self.trustBlob.peerRef.name != self.keyServerRef.name",message="trustBlob.peerRef must not name the KeyServer of keyServerRef; a key server is not its own peer"
type TrustedServerSpec struct {
	ManagedSpec `json:",inline"`

	// trustBlob is the trustBlob of the peer's GET /api/trust/local-info. It is given here, or fetched by peerRef. A
	// given blob cannot change after the peer is registered: the peer would have to be removed first, and its
	// principals would lose their access until it is registered again.
	// +required
	TrustBlob TrustBlobSource `json:"trustBlob"`

	// friendlyName is the display name of the peer.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.trim() == self && !self.matches('[[:cntrl:]]')",message="must not begin or end with a space or hold control characters"
	// +required
	FriendlyName string `json:"friendlyName,omitempty"`

	// description describes the peer. If it is omitted, the text on the key server stays unchanged.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.matches('[[:cntrl:]]')",message="must not hold control characters"
	// +optional
	Description *string `json:"description,omitempty"`

	// witness makes the key server and the peer cosign the checkpoints of each other's audit log, if the peer enables
	// this, too. If witness is omitted, the setting stays unchanged.
	// +optional
	Witness *bool `json:"witness,omitempty"`

	// warnBefore is how long before the certificate expires the condition Expiring appears. From 0s to 8760h.
	// +default="720h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}([.][0-9]+)?h|[0-9]{1,7}([.][0-9]+)?m|[0-9]{1,9}([.][0-9]+)?m?s)+$') && duration(self) <= duration('8760h')",message="must be a duration from 0s to 8760h, such as 720h"
	// +optional
	WarnBefore *metav1.Duration `json:"warnBefore,omitempty"`
}

// TrustBlobSource is the source of a trust blob. A line end after the blob is ignored.
// +structType=atomic
// +kubebuilder:validation:XValidation:rule="[has(self.inline), has(self.secretKeyRef), has(self.configMapKeyRef), has(self.peerRef)].filter(x, x).size() == 1",message="give exactly one of inline, secretKeyRef, configMapKeyRef and peerRef"
// +kubebuilder:validation:XValidation:fieldPath=".inline",rule="!has(self.inline) || !has(oldSelf.inline) || self.inline.split('\\t')[0] == oldSelf.inline.split('\\t')[0]",message="the system id cannot be changed; delete this object and create it again for the other key server"
type TrustBlobSource struct {
	// inline has the blob: system id, server name, external listener port and base64 PKCS#7 chain, separated by tabs.
	// +kubebuilder:validation:MaxLength=65536
	// +kubebuilder:validation:XValidation:rule="self.split('\\t').size() == 4",message="must have four fields separated by tabs: system id, server name, external listener port, base64 PKCS#7 chain"
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|[1-9][0-9]{0,9})\\t') && int(self.split('\\t')[0]) <= 4294967295",message="must begin with the system id, a decimal number from 0 to 4294967295 without leading zeros"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[^\\t]*\\t[^\\t]*\\t') || self.matches('^[^\\t]*\\t[0-9A-Za-z._:-]{1,253}\\t')",message="must have a host name or an IP address as its second field"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[^\\t]*\\t[^\\t]*\\t[^\\t]*\\t') || (self.matches('^[^\\t]*\\t[^\\t]*\\t[1-9][0-9]{0,4}\\t') && int(self.split('\\t')[2]) <= 65535)",message="must have a port from 1 to 65535 as its third field"
	// +kubebuilder:validation:XValidation:rule="self.split('\\t').size() != 4 || self.matches('\\t[0-9A-Za-z+/]+={0,2}\\n?$')",message="must have base64 without line breaks as its fourth field"
	// +optional
	Inline *string `json:"inline,omitempty"`
	// secretKeyRef names a key of a Secret in this namespace.
	// +optional
	SecretKeyRef *LocalKeyReference `json:"secretKeyRef,omitempty"`
	// configMapKeyRef names a key of a ConfigMap in this namespace.
	// +optional
	ConfigMapKeyRef *LocalKeyReference `json:"configMapKeyRef,omitempty"`
	// peerRef names another KeyServer, from which the manager fetches the trust blob. If the peer's key, name or port
	// changes, the manager replaces the record of the peer, and access does not change. The CA that issued the peer's
	// certificate must be trusted; a TrustedCA with the same peerRef declares it.
	// +optional
	PeerRef *PeerReference `json:"peerRef,omitempty"`
}

// TrustedServerStatus is the last known state of the peer on the key server.
type TrustedServerStatus struct {
	ManagedStatus `json:",inline"`

	// systemId identifies the peer on the key server.
	// +optional
	SystemID *int64 `json:"systemId,omitempty"`
	// serverName is the host name or address in the trust blob.
	// +optional
	ServerName string `json:"serverName,omitempty"`
	// port is the port of the peer's external listener.
	// +optional
	Port *int32 `json:"port,omitempty"`
	// fingerprint is the SHA-256 of the peer's certificate, lower-case hexadecimal.
	// +optional
	Fingerprint string `json:"fingerprint,omitempty"`
	// notAfter is when the peer's certificate expires.
	// +optional
	NotAfter *metav1.Time `json:"notAfter,omitempty"`
	// issuer is the CA that must be trusted for the peer's chain.
	// +optional
	Issuer string `json:"issuer,omitempty"`
	// issuerFingerprint is the SHA-256 of the trusted CA that the chain leads to. It is empty if the chain leads to no
	// trusted CA.
	// +optional
	IssuerFingerprint string `json:"issuerFingerprint,omitempty"`
	// removal lists the side effects of removing the peer. It appears just before the peer is removed.
	// +optional
	Removal *PeerRemoval `json:"removal,omitempty"`
}

// PeerRemoval lists the side effects of removing a peer.
type PeerRemoval struct {
	// aclSideEffect says what happens to the access of the peer's principals.
	// +required
	ACLSideEffect string `json:"aclSideEffect"`
	// orphanedPrincipalTrusts are the ids of principal trusts that stay after their peer is removed, at most 64.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	OrphanedPrincipalTrusts []string `json:"orphanedPrincipalTrusts,omitempty"`
	// orphanedPrincipalTrustCount is the number of all principal trusts that stay.
	// +required
	OrphanedPrincipalTrustCount int32 `json:"orphanedPrincipalTrustCount"`
}

// TrustedServer declares that a key server knows another one as its peer.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,path=trustedservers,shortName=tserver,categories=trust
// +kubebuilder:selectablefield:JSONPath=`.spec.keyServerRef.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Verified",type=string,JSONPath=`.status.conditions[?(@.type=="Verified")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="System",type=integer,JSONPath=`.status.systemId`
// +kubebuilder:printcolumn:name="Server",type=string,JSONPath=`.status.serverName`
// +kubebuilder:printcolumn:name="NotAfter",type=string,JSONPath=`.status.notAfter`
// +kubebuilder:printcolumn:name="Issuer",type=string,JSONPath=`.status.issuer`,priority=1
// +kubebuilder:printcolumn:name="KeyServer",type=string,JSONPath=`.spec.keyServerRef.name`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TrustedServer struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard metadata of all objects.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec declares that another key server is registered as a peer.
	// +required
	Spec TrustedServerSpec `json:"spec,omitzero"`
	// status counts as older than the spec until the manager has processed the object.
	// +default={"observedGeneration":-1}
	// +optional
	Status TrustedServerStatus `json:"status,omitempty"`
}

// Managed returns the parts of the spec and the status that all kinds but KeyServer
// share.
func (s *TrustedServer) Managed() (*ManagedSpec, *ManagedStatus) {
	return &s.Spec.ManagedSpec, &s.Status.ManagedStatus
}

// TrustedServerList is a list of TrustedServers.
//
// +kubebuilder:object:root=true
type TrustedServerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TrustedServer `json:"items"`
}
