package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TrustedCASpec declares that the key server trusts one CA certificate.
// +kubebuilder:validation:XValidation:fieldPath=".certificate.peerRef",rule="!has(self.certificate.peerRef) || self.certificate.peerRef.name != self.keyServerRef.name",message="certificate.peerRef must not name the KeyServer of keyServerRef"
// +kubebuilder:validation:XValidation:fieldPath=".publish.configMap.name",rule="!has(self.publish) || !has(self.publish.configMap) || has(self.publish.configMap.namespaces) || ((!has(self.certificate.configMapKeyRef) || self.certificate.configMapKeyRef.name != self.publish.configMap.name) && (!has(self.revocation) || !has(self.revocation.crl) || self.revocation.crl.configMapKeyRef.name != self.publish.configMap.name))",message="publish.configMap must not name the ConfigMap that certificate or revocation.crl is read from; give another name"
type TrustedCASpec struct {
	ManagedSpec `json:",inline"`

	// certificate is the CA certificate: exactly one PEM block of type CERTIFICATE, inline or in a Secret or ConfigMap
	// of this namespace. It can also refer to the CA that issued the certificate of a peer. If it changes, the new CA
	// is trusted and verified before the old one is removed.
	// +required
	Certificate CertificateSource `json:"certificate"`

	// rotation says how a changed certificate replaces the old one.
	// +default={"overlap": "24h"}
	// +optional
	Rotation Rotation `json:"rotation,omitzero"`

	// warnBefore is how long before the certificate expires the condition Expiring appears. From 0s to 8760h. For a
	// revocation list, the condition appears as early, but not before the last quarter of its lifetime.
	// +default="720h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}([.][0-9]+)?h|[0-9]{1,7}([.][0-9]+)?m|[0-9]{1,9}([.][0-9]+)?m?s)+$') && duration(self) <= duration('8760h')",message="must be a duration from 0s to 8760h, such as 720h"
	// +optional
	WarnBefore *metav1.Duration `json:"warnBefore,omitempty"`

	// revocation sets how the key server uses revocation lists of the CA. If it is omitted, the policy and the list on
	// the key server stay unchanged, even if another client has set them.
	// +optional
	Revocation *Revocation `json:"revocation,omitempty"`

	// publish writes the trusted certificates into the cluster after the second read of the key server. During a
	// rotation, replaced certificates are included as long as they are trusted.
	// +optional
	Publish *TrustPublication `json:"publish,omitempty"`
}

// TrustPublication says where the certificates are published, as PEM.
// +kubebuilder:validation:XValidation:rule="has(self.clusterTrustBundle) != has(self.configMap)",message="give exactly one of clusterTrustBundle and configMap"
type TrustPublication struct {
	// clusterTrustBundle names a ClusterTrustBundle of certificates.k8s.io, which every Pod of the cluster can mount.
	// The API server has to serve this kind.
	// +optional
	ClusterTrustBundle *PublishedBundle `json:"clusterTrustBundle,omitempty"`
	// configMap names a ConfigMap in one or more namespaces.
	// +optional
	ConfigMap *PublishedConfigMap `json:"configMap,omitempty"`
}

// PublishedBundle names a ClusterTrustBundle without a signer.
type PublishedBundle struct {
	// name is the name of the ClusterTrustBundle. The default is the namespace and the name of this object with a '.'
	// between them.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be lower-case letters, digits, '-' and '.'; bundles of a signer, with a ':' in the name, are not supported"
	// +optional
	Name string `json:"name,omitempty"`
}

// PublishedConfigMap names a ConfigMap with certificates.
type PublishedConfigMap struct {
	// name is the name of the ConfigMap. The manager does not change a ConfigMap that it did not create.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a ConfigMap: lower-case letters, digits, '-' and '.'"
	// +required
	Name string `json:"name,omitempty"`
	// key is the key in the ConfigMap whose value is the certificates.
	// +default="ca.crt"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$')",message="must be letters, digits, '-', '_' and '.'"
	// +optional
	Key string `json:"key,omitempty"`
	// namespaces are the namespaces to publish in, at most 256. The default is the namespace of this object.
	// +optional
	Namespaces *GrantedNamespaces `json:"namespaces,omitempty"`
}

// Revocation is the revocation policy of a CA, and the source of its revocation list. During a rotation, the policy
// applies to the old and the new CA.
type Revocation struct {
	// mode is "off" to ignore revocation lists, when-available to reject the certificates that the list names, or
	// required to also reject all certificates if there is no current list. Quote "off", because YAML reads an unquoted
	// off as false.
	// +kubebuilder:validation:Enum="off";when-available;required
	// +required
	Mode RevocationMode `json:"mode,omitempty"`
	// maxAge is the time after its thisUpdate in which a revocation list is current, in whole seconds, from 0s to
	// 8784h. A list is never current after its nextUpdate. If maxAge is 0s or omitted, only nextUpdate counts.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}h|[0-9]{1,7}m|[0-9]{1,9}s)+$') && duration(self) <= duration('8784h')",message="must be a duration of whole seconds from 0s to 8784h, such as 24h"
	// +optional
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`
	// crl is the source of the CA's revocation list. The manager imports the list if it is newer than the list on the
	// key server. If crl is omitted, other clients import the lists.
	// +optional
	CRL *CRLSource `json:"crl,omitempty"`
}

// RevocationMode says how revocation lists are used. Its values are those of the key
// server, like the values of TrustFlag. Values that only the manager defines are in
// CamelCase.
type RevocationMode string

// The modes.
const (
	RevocationOff           RevocationMode = "off"
	RevocationWhenAvailable RevocationMode = "when-available"
	RevocationRequired      RevocationMode = "required"
)

// CRLSource is the source of a certificate revocation list.
type CRLSource struct {
	// configMapKeyRef names a key of a ConfigMap in this namespace with one complete list, in PEM (X509 CRL) or DER.
	// +required
	ConfigMapKeyRef LocalKeyReference `json:"configMapKeyRef,omitzero"`
}

// CertificateSource is the source of a certificate.
// +structType=atomic
// +kubebuilder:validation:XValidation:rule="[has(self.inline), has(self.secretKeyRef), has(self.configMapKeyRef), has(self.peerRef)].filter(x, x).size() == 1",message="give exactly one of inline, secretKeyRef, configMapKeyRef and peerRef"
type CertificateSource struct {
	// inline has the certificate as PEM.
	// +kubebuilder:validation:MaxLength=32768
	// +kubebuilder:validation:XValidation:reason=FieldValueForbidden,rule="self.split('-----BEGIN CERTIFICATE-----').size() == 2 && self.contains('-----END CERTIFICATE-----')",message="must hold exactly one PEM block of type CERTIFICATE; declare each CA in a separate object"
	// +kubebuilder:validation:XValidation:reason=FieldValueForbidden,rule="!self.contains('PRIVATE KEY')",message="must not hold a private key"
	// +optional
	Inline *string `json:"inline,omitempty"`
	// secretKeyRef names a key of a Secret in this namespace, for example ca.crt of a Secret that cert-manager
	// maintains.
	// +optional
	SecretKeyRef *LocalKeyReference `json:"secretKeyRef,omitempty"`
	// configMapKeyRef names a key of a ConfigMap in this namespace.
	// +optional
	ConfigMapKeyRef *LocalKeyReference `json:"configMapKeyRef,omitempty"`
	// peerRef names another KeyServer. The declared CA is then the issuer of the certificate that the other key server
	// uses for its peers, as that key server reports it. If the issuer changes, the new CA replaces the old one like
	// any changed certificate.
	// +optional
	PeerRef *PeerReference `json:"peerRef,omitempty"`
}

// Rotation says how a new certificate replaces the old one.
type Rotation struct {
	// overlap is how long the old CA stays trusted after the new CA was verified, so that leaf certificates can be
	// reissued. From 0s to 8760h.
	// +default="24h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}([.][0-9]+)?h|[0-9]{1,7}([.][0-9]+)?m|[0-9]{1,9}([.][0-9]+)?m?s)+$') && duration(self) <= duration('8760h')",message="must be a duration from 0s to 8760h, such as 0s, 30m or 24h"
	// +optional
	Overlap *metav1.Duration `json:"overlap,omitempty"`
}

// TrustedCAStatus is the last known state of the CA on the key server.
type TrustedCAStatus struct {
	ManagedStatus `json:",inline"`

	// certificateId is the id of the certificate on the key server: canonical base64 of 8 bytes, as in the trust
	// routes.
	// +optional
	CertificateID string `json:"certificateId,omitempty"`
	// fingerprint is the SHA-256 of the certificate, lower-case hexadecimal.
	// +optional
	Fingerprint string `json:"fingerprint,omitempty"`
	// subject is the subject of the certificate in the format of RFC 2253: "CN=Partners CA,O=Shop". The API of the key
	// server shows it as "/O=Shop/CN=Partners CA".
	// +optional
	Subject string `json:"subject,omitempty"`
	// notBefore is when the certificate becomes valid.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty"`
	// notAfter is when the certificate expires.
	// +optional
	NotAfter *metav1.Time `json:"notAfter,omitempty"`
	// superseded lists the CAs that this CA replaced. They stay trusted until their overlap ends.
	// +listType=map
	// +listMapKey=certificateId
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Superseded []SupersededCA `json:"superseded,omitempty"`
	// revocation is the revocation policy and list of the CA on the key server, if the spec declares a policy.
	// +optional
	Revocation *RevocationStatus `json:"revocation,omitempty"`
	// published lists the objects that the manager has written for spec.publish.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	// +optional
	Published []PublishedReference `json:"published,omitempty"`
}

// EvidenceState says whether a revocation list can be used now. Its values are those of
// the key server.
// +kubebuilder:validation:Enum=none;current;stale
type EvidenceState string

// The states.
const (
	NoEvidence      EvidenceState = "none"
	CurrentEvidence EvidenceState = "current"
	StaleEvidence   EvidenceState = "stale" // past its nextUpdate or the policy's maxAge
)

// RevocationStatus is the revocation policy and list of one CA on the key server.
type RevocationStatus struct {
	// issuer identifies the CA in the change feed of the key server: 16 hexadecimal digits.
	// +required
	Issuer string `json:"issuer"`
	// mode is the mode of the policy. A newer key server may have other modes than spec.revocation.mode.
	// +required
	Mode RevocationMode `json:"mode"`
	// evidence is none if there is no list; otherwise current or stale. A list is stale if it is past its nextUpdate or
	// older than maxAge.
	// +required
	Evidence EvidenceState `json:"evidence,omitempty"`
	// currentUntil is when the list becomes stale.
	// +optional
	CurrentUntil *metav1.Time `json:"currentUntil,omitempty"`
	// thisUpdate is when the CA created the list.
	// +optional
	ThisUpdate *metav1.Time `json:"thisUpdate,omitempty"`
	// number is the number of the list, if the list has one.
	// +optional
	Number string `json:"number,omitempty"`
	// revoked is the number of certificates that the list names.
	// +optional
	Revoked int64 `json:"revoked,omitempty"`
	// notImported states why the manager does not import the list in spec.revocation.crl. Either the list is not newer
	// than the list of the key server, or its nextUpdate has passed.
	// +optional
	NotImported string `json:"notImported,omitempty"`
}

// SupersededCA is a CA that a rotation has replaced.
type SupersededCA struct {
	// certificateId is the id of the CA on the key server.
	// +required
	CertificateID string `json:"certificateId"`
	// fingerprint is the SHA-256 of the certificate, lower-case hexadecimal.
	// +required
	Fingerprint string `json:"fingerprint"`
	// provenance is the provenance of the superseded CA. It decides whether the CA is removed.
	// +optional
	Provenance Provenance `json:"provenance,omitempty"`
	// removeAfter is the time at which the overlap of the CA ends.
	// +required
	RemoveAfter metav1.Time `json:"removeAfter"`
	// revocationIssuer identifies the CA in the change feed of the key server, if the spec declares a revocation
	// policy.
	// +optional
	RevocationIssuer string `json:"revocationIssuer,omitempty"`
}

// TrustedCA declares that a key server trusts one CA.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,path=trustedcas,shortName=tca,categories=trust
// +kubebuilder:selectablefield:JSONPath=`.spec.keyServerRef.name`
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
	// metadata is the standard metadata of all objects.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec declares that the key server trusts one CA certificate.
	// +required
	Spec TrustedCASpec `json:"spec"`
	// status counts as older than the spec until the manager has processed the object.
	// +default={"observedGeneration":-1}
	// +optional
	Status TrustedCAStatus `json:"status,omitempty"`
}

// Managed returns the parts of the spec and the status that all kinds but KeyServer
// share.
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
