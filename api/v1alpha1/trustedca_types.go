package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TrustedCASpec declares that the key server trusts one CA certificate.
// +kubebuilder:validation:XValidation:rule="!has(self.certificate.peerRef) || self.certificate.peerRef.name != self.keyServerRef.name",message="certificate.peerRef must name another KeyServer than keyServerRef does"
type TrustedCASpec struct {
	ManagedSpec `json:",inline"`

	// Certificate is the CA certificate: exactly one PEM block of type
	// CERTIFICATE, inline or in a Secret or ConfigMap of this namespace, or the
	// one that issued the certificate of a peer. If it changes, the new CA is
	// trusted and verified before the old one is removed.
	Certificate CertificateSource `json:"certificate"`

	// Rotation says how a changed certificate takes over from the old one.
	// +kubebuilder:default={overlap: "24h"}
	// +optional
	Rotation Rotation `json:"rotation,omitzero"`

	// WarnBefore is how long before its end the condition Expiring says that the
	// certificate is about to expire. From 0s to 8760h.
	// +kubebuilder:default="720h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,9}([.][0-9]{1,9})?(ms|s|m|h))+$') && duration(self) <= duration('8760h')",message="must be a duration from 0s to 8760h, such as 720h"
	// +optional
	WarnBefore *metav1.Duration `json:"warnBefore,omitempty"`

	// Revocation says what revocation lists of the CA mean to the key server. Left
	// out, its policy and its list stay as they are, whoever has set them.
	// +optional
	Revocation *Revocation `json:"revocation,omitempty"`

	// Publish tells the cluster what is trusted: once the key server was re-read, the
	// certificate, and during a rotation also those that it replaces, for as long as
	// they are trusted.
	// +optional
	Publish *TrustPublication `json:"publish,omitempty"`
}

// TrustPublication is where the certificates are published, as PEM.
// +kubebuilder:validation:XValidation:rule="has(self.clusterTrustBundle) != has(self.configMap)",message="give exactly one of clusterTrustBundle and configMap"
type TrustPublication struct {
	// ClusterTrustBundle of certificates.k8s.io, which every Pod of the cluster can
	// mount, where the API server serves them.
	// +optional
	ClusterTrustBundle *PublishedBundle `json:"clusterTrustBundle,omitempty"`
	// ConfigMap of one or more namespaces.
	// +optional
	ConfigMap *PublishedConfigMap `json:"configMap,omitempty"`
}

// PublishedBundle names a ClusterTrustBundle without a signer.
type PublishedBundle struct {
	// Name of the ClusterTrustBundle. Left out, it is the namespace and the name of
	// this object with a '.' in between.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be lower-case letters, digits, '-' and '.'; bundles of a signer, with a ':' in their name, are not published"
	// +optional
	Name string `json:"name,omitempty"`
}

// PublishedConfigMap names a ConfigMap that holds certificates.
type PublishedConfigMap struct {
	// Name of the ConfigMap. One that the manager did not make is left alone.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a ConfigMap: lower-case letters, digits, '-' and '.'"
	Name string `json:"name"`
	// Key that holds the certificates.
	// +kubebuilder:default=ca.crt
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$')",message="must be letters, digits, '-', '_' and '.'"
	// +optional
	Key string `json:"key,omitempty"`
	// Namespaces to publish in, at most 256. Left out, it is that of this object.
	// +optional
	Namespaces *GrantedNamespaces `json:"namespaces,omitempty"`
}

// Revocation is the revocation policy of a CA, and its list. While a rotation keeps
// the CA that it replaces, the policy is set for both.
type Revocation struct {
	// Mode is "off" to look at no list, when-available to refuse the certificates
	// that the list names, or required to refuse all of them, too, where there is no
	// current list. Quote "off": YAML takes it for false.
	Mode RevocationMode `json:"mode"`
	// MaxAge is how long after its thisUpdate a list counts as current, in whole
	// seconds, from 0s to 8784h. 0s, or left out, is until its nextUpdate.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,9}(s|m|h))+$') && duration(self) <= duration('8784h')",message="must be a duration of whole seconds from 0s to 8784h, such as 24h"
	// +optional
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`
	// CRL is where the CA's revocation list comes from. It is imported when it is
	// newer than the one that the key server holds. Left out, lists are imported by
	// somebody else.
	// +optional
	CRL *CRLSource `json:"crl,omitempty"`
}

// RevocationMode says how revocation lists count. As the other words of the key server
// in this group, a TrustFlag for instance, it is spelled as there; what is the
// manager's own is in CamelCase.
// +kubebuilder:validation:Enum="off";when-available;required
type RevocationMode string

// The modes.
const (
	RevocationOff           RevocationMode = "off"
	RevocationWhenAvailable RevocationMode = "when-available"
	RevocationRequired      RevocationMode = "required"
)

// CRLSource is where a certificate revocation list comes from.
type CRLSource struct {
	// ConfigMapKeyRef names the key of a ConfigMap in this namespace that holds one
	// complete list, in PEM (X509 CRL) or DER.
	ConfigMapKeyRef LocalKeyReference `json:"configMapKeyRef"`
}

// CertificateSource is where a certificate comes from.
// +kubebuilder:validation:XValidation:rule="[has(self.inline), has(self.secretKeyRef), has(self.configMapKeyRef), has(self.peerRef)].filter(x, x).size() == 1",message="give exactly one of inline, secretKeyRef, configMapKeyRef and peerRef"
type CertificateSource struct {
	// Inline holds the certificate as PEM.
	// +kubebuilder:validation:MaxLength=32768
	// +kubebuilder:validation:XValidation:reason=FieldValueForbidden,rule="self.split('-----BEGIN CERTIFICATE-----').size() == 2 && self.contains('-----END CERTIFICATE-----')",message="must hold exactly one PEM block of type CERTIFICATE; declare each CA in an object of its own"
	// +kubebuilder:validation:XValidation:reason=FieldValueForbidden,rule="!self.contains('PRIVATE KEY')",message="must not hold a private key"
	// +optional
	Inline *string `json:"inline,omitempty"`
	// SecretKeyRef names the key of a Secret in this namespace, for instance
	// ca.crt of a Secret that cert-manager keeps.
	// +optional
	SecretKeyRef *LocalKeyReference `json:"secretKeyRef,omitempty"`
	// ConfigMapKeyRef names the key of a ConfigMap in this namespace.
	// +optional
	ConfigMapKeyRef *LocalKeyReference `json:"configMapKeyRef,omitempty"`
	// PeerRef names another KeyServer. The CA is the one that issued its
	// certificate for peers, as the KeyServer itself says; if that changes, the
	// new one is followed as any changed certificate is.
	// +optional
	PeerRef *PeerReference `json:"peerRef,omitempty"`
}

// Rotation is how a new certificate takes over.
type Rotation struct {
	// Overlap is how long the old CA stays trusted after the new one was
	// verified, so that leaves can be issued anew. From 0s to 8760h.
	// +kubebuilder:default="24h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,9}([.][0-9]{1,9})?(ms|s|m|h))+$') && duration(self) <= duration('8760h')",message="must be a duration from 0s to 8760h, such as 0s, 30m or 24h"
	// +optional
	Overlap *metav1.Duration `json:"overlap,omitempty"`
}

// TrustedCAStatus is what is known of the CA on the key server.
type TrustedCAStatus struct {
	ManagedStatus `json:",inline"`

	// CertificateID is the id the key server gave the certificate: canonical
	// base64 of 8 bytes, as the trust routes take it.
	// +optional
	CertificateID string `json:"certificateId,omitempty"`
	// Fingerprint is the SHA-256 of the certificate, lower-case hexadecimal.
	// +optional
	Fingerprint string `json:"fingerprint,omitempty"`
	// Subject of the certificate, by RFC 2253: "CN=Partners CA,O=Shop". The API of the
	// key server shows it as "/O=Shop/CN=Partners CA".
	// +optional
	Subject string `json:"subject,omitempty"`
	// NotBefore is when the certificate becomes valid.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty"`
	// NotAfter is when the certificate expires.
	// +optional
	NotAfter *metav1.Time `json:"notAfter,omitempty"`
	// Superseded lists the CAs that this one took over from and that are still
	// trusted until their overlap ends.
	// +listType=map
	// +listMapKey=certificateId
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Superseded []SupersededCA `json:"superseded,omitempty"`
	// Revocation is what the key server holds of the CA's revocation policy and
	// list, where the spec declares any.
	// +optional
	Revocation *RevocationStatus `json:"revocation,omitempty"`
	// Published lists what the manager has written because of spec.publish.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	// +optional
	Published []PublishedReference `json:"published,omitempty"`
}

// EvidenceState says what a revocation list is worth now. It is spelled as the key
// server does.
// +kubebuilder:validation:Enum=none;current;stale
type EvidenceState string

// The states.
const (
	NoEvidence      EvidenceState = "none"
	CurrentEvidence EvidenceState = "current"
	StaleEvidence   EvidenceState = "stale" // past its nextUpdate or the policy's maxAge
)

// RevocationStatus is what the key server holds about the revocation of one CA.
type RevocationStatus struct {
	// Issuer is what the key server's changes name the CA by: 16 hexadecimal digits.
	Issuer string `json:"issuer"`
	// Mode of the policy.
	Mode RevocationMode `json:"mode"`
	// Evidence is none without a list, current, or stale when the list is past its
	// nextUpdate or older than maxAge.
	Evidence EvidenceState `json:"evidence"`
	// CurrentUntil is when the list becomes stale.
	// +optional
	CurrentUntil *metav1.Time `json:"currentUntil,omitempty"`
	// ThisUpdate is when the CA made the list.
	// +optional
	ThisUpdate *metav1.Time `json:"thisUpdate,omitempty"`
	// Number of the list, where it has one.
	// +optional
	Number string `json:"number,omitempty"`
	// Revoked is how many certificates the list names.
	// +optional
	Revoked int64 `json:"revoked,omitempty"`
	// NotImported says why the list in spec.revocation.crl is not the one that the
	// key server holds, and is not sent: it is older, or it was due for replacement.
	// +optional
	NotImported string `json:"notImported,omitempty"`
}

// SupersededCA is a CA that a rotation has replaced.
type SupersededCA struct {
	// CertificateID on the key server.
	CertificateID string `json:"certificateId"`
	// Fingerprint is the SHA-256 of the certificate, lower-case hexadecimal.
	Fingerprint string `json:"fingerprint"`
	// Provenance of the superseded CA, which its removal depends on.
	// +optional
	Provenance Provenance `json:"provenance,omitempty"`
	// RemoveAfter is when its overlap ends.
	RemoveAfter metav1.Time `json:"removeAfter"`
	// RevocationIssuer is what the key server's changes of its revocation policy name
	// it by, where the spec declares one.
	// +optional
	RevocationIssuer string `json:"revocationIssuer,omitempty"`
}

// TrustedCA declares that a key server trusts one CA.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,path=trustedcas,shortName=tca,categories=trust
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Verified",type=string,JSONPath=`.status.conditions[?(@.type=="Verified")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Certificate",type=string,JSONPath=`.status.certificateId`
// +kubebuilder:printcolumn:name="NotAfter",type=string,JSONPath=`.status.notAfter`
// +kubebuilder:printcolumn:name="Revocation",type=string,JSONPath=`.status.revocation.evidence`,priority=1
// +kubebuilder:printcolumn:name="Subject",type=string,JSONPath=`.status.subject`,priority=1
// +kubebuilder:printcolumn:name="KeyServer",type=string,JSONPath=`.spec.keyServerRef.name`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TrustedCA struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec TrustedCASpec `json:"spec"`
	// Until the manager has been here, the status counts as behind the spec.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status TrustedCAStatus `json:"status,omitempty"`
}

// Managed returns what the object shares with every other kind.
func (c *TrustedCA) Managed() (*ManagedSpec, *ManagedStatus) {
	return &c.Spec.ManagedSpec, &c.Status.ManagedStatus
}

// TrustedCAList is a list of TrustedCAs.
//
// +kubebuilder:object:root=true
type TrustedCAList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TrustedCA `json:"items"`
}
