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
}

// CertificateSource is where a certificate comes from.
// +kubebuilder:validation:XValidation:rule="[has(self.inline), has(self.secretKeyRef), has(self.configMapKeyRef), has(self.peerRef)].filter(x, x).size() == 1",message="give exactly one of inline, secretKeyRef, configMapKeyRef and peerRef"
type CertificateSource struct {
	// Inline holds the certificate as PEM.
	// +kubebuilder:validation:MaxLength=32768
	// +kubebuilder:validation:XValidation:rule="self.split('-----BEGIN CERTIFICATE-----').size() == 2 && self.contains('-----END CERTIFICATE-----')",message="must hold exactly one PEM block of type CERTIFICATE; declare each CA in an object of its own"
	// +kubebuilder:validation:XValidation:rule="!self.contains('PRIVATE KEY')",message="must not hold a private key"
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
	// Subject of the certificate.
	// +optional
	Subject string `json:"subject,omitempty"`
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
