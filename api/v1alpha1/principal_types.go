package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PrincipalSpec declares one principal: who it is, what it may do, and who may act
// for it.
// +kubebuilder:validation:XValidation:rule="[has(self.serviceAccount), has(self.ldap), has(self.group), has(self.certificate)].filter(x, x).size() == 1",message="give exactly one of serviceAccount, ldap, group and certificate"
// +kubebuilder:validation:XValidation:rule="has(self.serviceAccount) == has(oldSelf.serviceAccount) && has(self.ldap) == has(oldSelf.ldap) && has(self.group) == has(oldSelf.group) && has(self.certificate) == has(oldSelf.certificate)",message="a principal cannot become one of another type; delete this object and create it anew"
// +kubebuilder:validation:XValidation:rule="has(self.principalName) == has(oldSelf.principalName) && (!has(self.principalName) || self.principalName == oldSelf.principalName)",message="principalName cannot be changed, added or removed; delete this object and create it anew"
// +kubebuilder:validation:XValidation:rule="!has(self.group) || has(self.principalName)",message="give principalName, the name of the group on the key server"
// +kubebuilder:validation:XValidation:rule="!has(self.ldap) || !has(self.principalName)",message="leave principalName out: the name is that in ldap.name"
// +kubebuilder:validation:XValidation:rule="!has(self.certificate) || !has(self.principalName)",message="leave principalName out: the name is the subject of the certificate"
// +kubebuilder:validation:XValidation:rule="!has(self.serviceAccount) || has(self.principalName) || !has(self.serviceAccount.__namespace__) || size(self.serviceAccount.__namespace__) + size(self.serviceAccount.name) <= 105",message="give principalName: system:serviceaccount: with this namespace and name is longer than 128 characters, which is the longest name of a principal"
// +kubebuilder:validation:XValidation:rule="!has(self.group) || !has(self.groups) || self.groups.size() == 0",message="leave groups out: a group cannot be a member of a group"
// +kubebuilder:validation:XValidation:rule="!has(self.group) || !has(self.disabled) || !self.disabled",message="a group cannot be disabled; take its roles or its members away instead"
// +kubebuilder:validation:XValidation:rule="!has(self.group) || !has(self.delegation)",message="leave delegation out: nobody acts for a group"
type PrincipalSpec struct {
	ManagedSpec `json:",inline"`

	// ServiceAccount is a service account of a Kubernetes cluster, which logs in
	// with its token. It cannot be changed, its audiences neither: the key server
	// has no way to change them.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed, audiences neither, because the key server has no way to change them; delete this object and create it anew"
	// +optional
	ServiceAccount *PrincipalServiceAccount `json:"serviceAccount,omitempty"`

	// LDAP is somebody whom the key server's directory knows. It cannot be changed.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed; delete this object and create it anew"
	// +optional
	LDAP *PrincipalLDAP `json:"ldap,omitempty"`

	// Group is a principal whose members hold what it holds; write "group: {}".
	// Principals join it by their groups.
	// +optional
	Group *PrincipalGroup `json:"group,omitempty"`

	// Certificate is whoever has the key of a client certificate. The name of the
	// principal is the subject of the certificate in slash form, "/O=Shop/CN=agent".
	// +optional
	Certificate *PrincipalCertificate `json:"certificate,omitempty"`

	// PrincipalName is the name on the key server. It is required with group, and
	// cannot be changed. With serviceAccount it is system:serviceaccount:NAMESPACE:NAME
	// where it is left out; with ldap and certificate it is not given.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.trim() == self && !self.matches('[[:cntrl:]]')",message="must not begin or end with a space or hold control characters"
	// +optional
	PrincipalName *string `json:"principalName,omitempty"`

	// Roles is the complete set of roles that the principal holds by itself. Left
	// out, it holds none. What is added on the key server is taken away again.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Roles []PrincipalRole `json:"roles,omitempty"`

	// Groups is the complete set of groups that the principal is in. Left out, it is
	// in none. What is added on the key server is taken away again.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Groups []PrincipalMembership `json:"groups,omitempty"`

	// Disabled principals do not get in, and their sessions end.
	// +optional
	Disabled bool `json:"disabled,omitempty"`

	// Delegation lets others act with the rights of the principal. Left out, nobody
	// does.
	// +optional
	Delegation *PrincipalDelegation `json:"delegation,omitempty"`

	// WarnBefore is how long before the end of a certificate the condition Expiring
	// says that it is about to expire. From 0s to 8760h.
	// +kubebuilder:default="720h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,9}([.][0-9]{1,9})?(ms|s|m|h))+$') && duration(self) <= duration('8760h')",message="must be a duration from 0s to 8760h, such as 720h"
	// +optional
	WarnBefore *metav1.Duration `json:"warnBefore,omitempty"`
}

// PrincipalServiceAccount is a service account of a Kubernetes cluster.
type PrincipalServiceAccount struct {
	// Namespace of the service account. Left out, it is that of this object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="must be the name of a namespace: lower-case letters, digits and '-'"
	// +optional
	Namespace *string `json:"namespace,omitempty"`
	// Name of the service account.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a service account: lower-case letters, digits, '-' and '.'"
	Name string `json:"name"`
	// Issuer of its tokens, as their claim iss says. Left out, it is the cluster that
	// the manager runs in.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[!-~]+$')",message="must be printable ASCII without spaces; it is compared byte by byte with the claim iss of a token"
	// +optional
	Issuer *string `json:"issuer,omitempty"`
	// Audiences, of which a token must name one. Left out, it is the audience that
	// the key server demands by itself.
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[!-~]+$')",message="must be printable ASCII without spaces; it is compared byte by byte with what a token says"
	// +optional
	Audiences []string `json:"audiences,omitempty"`
}

// PrincipalLDAP is somebody whom a directory knows.
type PrincipalLDAP struct {
	// Name as the directory knows it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.trim() == self && !self.matches('[[:cntrl:]]')",message="must not begin or end with a space or hold control characters"
	Name string `json:"name"`
}

// PrincipalGroup says that a principal is a group.
type PrincipalGroup struct{}

// PrincipalCertificate is where a client certificate comes from.
// +kubebuilder:validation:XValidation:rule="has(self.request) != has(self.certificate)",message="give exactly one of request, from which the key server issues a certificate, and certificate"
// +kubebuilder:validation:XValidation:rule="has(self.request) == has(oldSelf.request)",message="request and certificate cannot take each other's place; delete this object and create it anew"
// +kubebuilder:validation:XValidation:rule="has(self.request) || !has(self.validityDays)",message="validityDays goes with request; a certificate that exists has its end"
type PrincipalCertificate struct {
	// Request is a PKCS#10 certificate request as PEM. The key server issues a
	// certificate for its subject and its key, which status.certificate has, and a
	// new one when two thirds of its life are over. The one before goes on being
	// good until its end.
	// +optional
	Request *CertificateRequestSource `json:"request,omitempty"`
	// Certificate is a client certificate as PEM, of a CA that the key server
	// trusts. If it changes, the new one gets in, too; it has to have the same
	// subject.
	// +optional
	Certificate *ClientCertificateSource `json:"certificate,omitempty"`
	// ValidityDays is how long a certificate that the key server issues is good.
	// Left out, it is the key server's to say.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3650
	// +optional
	ValidityDays *int32 `json:"validityDays,omitempty"`
}

// CertificateRequestSource is where a certificate request comes from.
// +kubebuilder:validation:XValidation:rule="has(self.inline) != has(self.configMapKeyRef)",message="give exactly one of inline and configMapKeyRef"
type CertificateRequestSource struct {
	// Inline holds the request as PEM.
	// +kubebuilder:validation:MaxLength=32768
	// +kubebuilder:validation:XValidation:reason=FieldValueForbidden,rule="self.contains('-----BEGIN CERTIFICATE REQUEST-----') && self.contains('-----END CERTIFICATE REQUEST-----')",message="must hold a PEM block of type CERTIFICATE REQUEST"
	// +kubebuilder:validation:XValidation:reason=FieldValueForbidden,rule="!self.contains('PRIVATE KEY')",message="must not hold a private key"
	// +optional
	Inline *string `json:"inline,omitempty"`
	// ConfigMapKeyRef names the key of a ConfigMap in this namespace.
	// +optional
	ConfigMapKeyRef *LocalKeyReference `json:"configMapKeyRef,omitempty"`
}

// ClientCertificateSource is where a client certificate comes from.
// +kubebuilder:validation:XValidation:rule="[has(self.inline), has(self.secretKeyRef), has(self.configMapKeyRef)].filter(x, x).size() == 1",message="give exactly one of inline, secretKeyRef and configMapKeyRef"
type ClientCertificateSource struct {
	// Inline holds the certificate as PEM.
	// +kubebuilder:validation:MaxLength=32768
	// +kubebuilder:validation:XValidation:reason=FieldValueForbidden,rule="self.split('-----BEGIN CERTIFICATE-----').size() == 2 && self.contains('-----END CERTIFICATE-----')",message="must hold exactly one PEM block of type CERTIFICATE"
	// +kubebuilder:validation:XValidation:reason=FieldValueForbidden,rule="!self.contains('PRIVATE KEY')",message="must not hold a private key"
	// +optional
	Inline *string `json:"inline,omitempty"`
	// SecretKeyRef names the key of a Secret in this namespace, for instance tls.crt
	// of one that cert-manager keeps; of a chain the first certificate counts.
	// +optional
	SecretKeyRef *LocalKeyReference `json:"secretKeyRef,omitempty"`
	// ConfigMapKeyRef names the key of a ConfigMap in this namespace.
	// +optional
	ConfigMapKeyRef *LocalKeyReference `json:"configMapKeyRef,omitempty"`
}

// PrincipalRole names one role.
// +kubebuilder:validation:XValidation:rule="has(self.name) != has(self.roleRef)",message="give exactly one of name and roleRef"
type PrincipalRole struct {
	// Name of a role on the key server, built-in ones included.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Name *string `json:"name,omitempty"`
	// RoleRef names a Role of this namespace.
	// +optional
	RoleRef *RoleReference `json:"roleRef,omitempty"`
}

// RoleReference names a Role of the same namespace.
type RoleReference struct {
	// Name of the Role.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a Role: lower-case letters, digits, '-' and '.'"
	Name string `json:"name"`
}

// PrincipalMembership names one group.
type PrincipalMembership struct {
	// PrincipalRef names a Principal of this namespace that is a group.
	PrincipalRef PrincipalObjectReference `json:"principalRef"`
}

// PrincipalDelegation says who may act with the rights of a principal.
// +kubebuilder:validation:XValidation:rule="(has(self.anybody) && self.anybody) != (has(self.delegates) && self.delegates.size() > 0)",message="give delegates, or anybody: true for everybody who may act for others; to let nobody, leave delegation out"
type PrincipalDelegation struct {
	// Anybody that may act for others may act for the principal.
	// +optional
	Anybody bool `json:"anybody,omitempty"`
	// Delegates are who alone may: the complete set.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Delegates []PrincipalDelegate `json:"delegates,omitempty"`
}

// PrincipalDelegate names one that may act for a principal.
type PrincipalDelegate struct {
	// PrincipalRef names a Principal of this namespace that is no group.
	PrincipalRef PrincipalObjectReference `json:"principalRef"`
}

// PrincipalObjectReference names a Principal of the same namespace.
type PrincipalObjectReference struct {
	// Name of the Principal.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a Principal: lower-case letters, digits, '-' and '.'"
	Name string `json:"name"`
}

// PrincipalStatus is what is known of the principal on the key server.
type PrincipalStatus struct {
	ManagedStatus `json:",inline"`

	// PrincipalID is the id of the principal, 16 hexadecimal digits.
	// +optional
	PrincipalID string `json:"principalId,omitempty"`
	// Name of the principal on the key server.
	// +optional
	Name string `json:"name,omitempty"`
	// Type of the principal on the key server.
	// +optional
	Type PrincipalType `json:"type,omitempty"`
	// RoleCount is the number of roles that the principal holds by itself.
	// +optional
	RoleCount *int32 `json:"roleCount,omitempty"`
	// GroupIDs are the ids of the groups that the principal is in.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	GroupIDs []string `json:"groupIds,omitempty"`
	// Certificate is the one that the key server has issued from the request last,
	// as PEM.
	// +optional
	Certificate string `json:"certificate,omitempty"`
	// NotBefore is when the certificate becomes valid.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty"`
	// NotAfter is when the certificate expires.
	// +optional
	NotAfter *metav1.Time `json:"notAfter,omitempty"`
	// RenewAfter is when the key server is asked for the next certificate.
	// +optional
	RenewAfter *metav1.Time `json:"renewAfter,omitempty"`
}

// Principal declares one principal of a key server: who may come, and what it may
// do.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,path=principals,shortName=ksp,categories=trust
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Verified",type=string,JSONPath=`.status.conditions[?(@.type=="Verified")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.status.type`
// +kubebuilder:printcolumn:name="Principal",type=string,JSONPath=`.status.name`
// +kubebuilder:printcolumn:name="Roles",type=integer,JSONPath=`.status.roleCount`
// +kubebuilder:printcolumn:name="ID",type=string,JSONPath=`.status.principalId`,priority=1
// +kubebuilder:printcolumn:name="NotAfter",type=string,JSONPath=`.status.notAfter`
// +kubebuilder:printcolumn:name="KeyServer",type=string,JSONPath=`.spec.keyServerRef.name`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Principal struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PrincipalSpec `json:"spec"`
	// Until the manager has been here, the status counts as behind the spec.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status PrincipalStatus `json:"status,omitempty"`
}

// Managed returns what the object shares with every other kind.
func (p *Principal) Managed() (*ManagedSpec, *ManagedStatus) {
	return &p.Spec.ManagedSpec, &p.Status.ManagedStatus
}

// PrincipalList is a list of Principals.
//
// +kubebuilder:object:root=true
type PrincipalList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Principal `json:"items"`
}
