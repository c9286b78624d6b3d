package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PrincipalSpec declares one principal: its identity, its rights, and which principals
// may act for it.
// +kubebuilder:validation:XValidation:rule="[has(self.serviceAccount), has(self.ldap), has(self.group), has(self.certificate)].filter(x, x).size() == 1",message="give exactly one of serviceAccount, ldap, group and certificate"
// +kubebuilder:validation:XValidation:rule="has(self.serviceAccount) == has(oldSelf.serviceAccount) && has(self.ldap) == has(oldSelf.ldap) && has(self.group) == has(oldSelf.group) && has(self.certificate) == has(oldSelf.certificate)",message="the type of a principal cannot be changed; delete this object and create it again"
// +kubebuilder:validation:XValidation:fieldPath=".principalName",rule="has(self.principalName) == has(oldSelf.principalName) && (!has(self.principalName) || self.principalName == oldSelf.principalName)",message="principalName cannot be changed, added or removed; delete this object and create it again"
// +kubebuilder:validation:XValidation:fieldPath=".principalName",rule="!has(self.group) || has(self.principalName)",message="give principalName, the name of the group on the key server"
// +kubebuilder:validation:XValidation:fieldPath=".principalName",rule="!has(self.ldap) || !has(self.principalName)",message="leave principalName out: the name comes from ldap.name"
// +kubebuilder:validation:XValidation:fieldPath=".principalName",rule="!has(self.certificate) || !has(self.principalName)",message="leave principalName out: the name is the subject of the certificate"
// +kubebuilder:validation:XValidation:fieldPath=".principalName",rule="!has(self.serviceAccount) || has(self.principalName) || !has(self.serviceAccount.__namespace__) || size(self.serviceAccount.__namespace__) + size(self.serviceAccount.name) <= 105",message="give principalName: the default system:serviceaccount:NAMESPACE:NAME is longer than 128 characters, the limit for the name of a principal"
// +kubebuilder:validation:XValidation:fieldPath=".groups",rule="!has(self.group) || !has(self.groups) || self.groups.size() == 0",message="leave groups out: a group cannot be a member of a group"
// +kubebuilder:validation:XValidation:fieldPath=".disabled",rule="!has(self.group) || !has(self.disabled) || !self.disabled",message="a group cannot be disabled; remove its roles or its members instead"
// +kubebuilder:validation:XValidation:fieldPath=".delegation",rule="!has(self.group) || !has(self.delegation)",message="leave delegation out: no principal can act for a group"
type PrincipalSpec struct {
	ManagedSpec `json:",inline"`

	// serviceAccount is a service account of a Kubernetes cluster, which logs in with its token. Neither the service
	// account nor its audiences can be changed, because the key server has no way to change them.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed, and neither can audiences, because the key server has no way to change them; delete this object and create it again"
	// +optional
	ServiceAccount *PrincipalServiceAccount `json:"serviceAccount,omitempty"`

	// ldap is a user of the key server's LDAP directory. It cannot be changed.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed; delete this object and create it again"
	// +optional
	LDAP *PrincipalLDAP `json:"ldap,omitempty"`

	// group makes the principal a group, whose members have its roles and rights; write "group: {}". Principals join by
	// their field groups.
	// +optional
	Group *PrincipalGroup `json:"group,omitempty"`

	// certificate makes the principal log in with a client certificate. Its name is the subject of the certificate in
	// slash form, "/O=Shop/CN=agent".
	// +optional
	Certificate *PrincipalCertificate `json:"certificate,omitempty"`

	// principalName is the name on the key server. It is required with group, and cannot be changed. With
	// serviceAccount, the default is system:serviceaccount:NAMESPACE:NAME. With ldap and certificate it must be
	// omitted.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.trim() == self && !self.matches('[[:cntrl:]]')",message="must not begin or end with a space or hold control characters"
	// +optional
	PrincipalName *string `json:"principalName,omitempty"`

	// roles is the complete set of roles that the principal has directly, not by a group. If it is omitted, the
	// principal has none. The manager removes roles that other clients add. Under server-side apply, one field manager
	// owns the complete list.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Roles []PrincipalRole `json:"roles,omitempty"`

	// groups is the complete set of groups of the principal. If it is omitted, the principal is in no group. The
	// manager removes memberships that other clients add. Under server-side apply, one field manager owns the complete
	// list.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Groups []PrincipalMembership `json:"groups,omitempty"`

	// disabled prevents the principal from logging in, and ends its sessions.
	// +optional
	Disabled bool `json:"disabled,omitempty"`

	// delegation allows other principals to act with the rights of the principal. If it is omitted, no principal can.
	// +optional
	Delegation *PrincipalDelegation `json:"delegation,omitempty"`

	// warnBefore is how long before the certificate expires the condition Expiring appears. From 0s to 8760h.
	// +default="720h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}([.][0-9]+)?h|[0-9]{1,7}([.][0-9]+)?m|[0-9]{1,9}([.][0-9]+)?m?s)+$') && duration(self) <= duration('8760h')",message="must be a duration from 0s to 8760h, such as 720h"
	// +optional
	WarnBefore *metav1.Duration `json:"warnBefore,omitempty"`
}

// PrincipalServiceAccount is a service account of a Kubernetes cluster.
// +structType=atomic
type PrincipalServiceAccount struct {
	// namespace is the namespace of the service account. The default is the namespace of this object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="must be the name of a namespace: lower-case letters, digits and '-'"
	// +optional
	Namespace *string `json:"namespace,omitempty"`
	// name is the name of the service account.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a service account: lower-case letters, digits, '-' and '.'"
	// +required
	Name string `json:"name,omitempty"`
	// issuer is the claim iss of the tokens. The default is the issuer of the cluster that the manager runs in.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[!-~]+$')",message="must be printable ASCII without spaces; it is compared byte by byte with the claim iss of a token"
	// +optional
	Issuer *string `json:"issuer,omitempty"`
	// audiences are accepted audiences; a token must have one of them. If they are omitted, a token needs the audience
	// that the key server requires by default.
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[!-~]+$')",message="must be printable ASCII without spaces; it is compared byte by byte with the claim aud of a token"
	// +optional
	Audiences []string `json:"audiences,omitempty"`
}

// PrincipalLDAP is a user of a directory.
type PrincipalLDAP struct {
	// name is the name of the user in the directory.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.trim() == self && !self.matches('[[:cntrl:]]')",message="must not begin or end with a space or hold control characters"
	// +required
	Name string `json:"name,omitempty"`
}

// PrincipalGroup marks a principal as a group.
type PrincipalGroup struct{}

// PrincipalCertificate is the source of a client certificate.
// +kubebuilder:validation:XValidation:rule="has(self.request) != has(self.certificate)",message="give exactly one of request and certificate; from request the key server issues a certificate"
// +kubebuilder:validation:XValidation:rule="has(self.request) == has(oldSelf.request)",message="request and certificate cannot replace each other; delete this object and create it again"
// +kubebuilder:validation:XValidation:fieldPath=".validityDays",rule="has(self.request) || !has(self.validityDays)",message="validityDays needs request, because an existing certificate has a fixed end; leave validityDays out"
type PrincipalCertificate struct {
	// request is a PKCS#10 certificate request as PEM. The key server issues a certificate for the subject and the key
	// of the request. The certificate appears in status.certificate. A new one is issued when two thirds of the
	// lifetime are over. The previous certificate stays valid until it expires.
	// +optional
	Request *CertificateRequestSource `json:"request,omitempty"`
	// certificate is a client certificate as PEM, of a CA that the key server trusts. If it changes, the new
	// certificate must have the same subject, and both certificates allow a login.
	// +optional
	Certificate *ClientCertificateSource `json:"certificate,omitempty"`
	// validityDays is the lifetime in days of a certificate that the key server issues. If it is omitted, the key
	// server decides.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3650
	// +optional
	ValidityDays *int32 `json:"validityDays,omitempty"`
}

// CertificateRequestSource is the source of a certificate request.
// +structType=atomic
// +kubebuilder:validation:XValidation:rule="has(self.inline) != has(self.configMapKeyRef)",message="give exactly one of inline and configMapKeyRef"
type CertificateRequestSource struct {
	// inline has the request as PEM.
	// +kubebuilder:validation:MaxLength=32768
	// +kubebuilder:validation:XValidation:reason=FieldValueForbidden,rule="self.contains('-----BEGIN CERTIFICATE REQUEST-----') && self.contains('-----END CERTIFICATE REQUEST-----')",message="must hold a PEM block of type CERTIFICATE REQUEST"
	// +kubebuilder:validation:XValidation:reason=FieldValueForbidden,rule="!self.contains('PRIVATE KEY')",message="must not hold a private key"
	// +optional
	Inline *string `json:"inline,omitempty"`
	// configMapKeyRef names a key of a ConfigMap in this namespace.
	// +optional
	ConfigMapKeyRef *LocalKeyReference `json:"configMapKeyRef,omitempty"`
}

// ClientCertificateSource is the source of a client certificate.
// +structType=atomic
// +kubebuilder:validation:XValidation:rule="[has(self.inline), has(self.secretKeyRef), has(self.configMapKeyRef)].filter(x, x).size() == 1",message="give exactly one of inline, secretKeyRef and configMapKeyRef"
type ClientCertificateSource struct {
	// inline has the certificate as PEM.
	// +kubebuilder:validation:MaxLength=32768
	// +kubebuilder:validation:XValidation:reason=FieldValueForbidden,rule="self.split('-----BEGIN CERTIFICATE-----').size() == 2 && self.contains('-----END CERTIFICATE-----')",message="must hold exactly one PEM block of type CERTIFICATE"
	// +kubebuilder:validation:XValidation:reason=FieldValueForbidden,rule="!self.contains('PRIVATE KEY')",message="must not hold a private key"
	// +optional
	Inline *string `json:"inline,omitempty"`
	// secretKeyRef names a key of a Secret in this namespace, for example tls.crt of a Secret that cert-manager
	// maintains. If the value is a chain, only its first certificate is used.
	// +optional
	SecretKeyRef *LocalKeyReference `json:"secretKeyRef,omitempty"`
	// configMapKeyRef names a key of a ConfigMap in this namespace.
	// +optional
	ConfigMapKeyRef *LocalKeyReference `json:"configMapKeyRef,omitempty"`
}

// PrincipalRole names one role.
// +kubebuilder:validation:XValidation:rule="has(self.name) != has(self.roleRef)",message="give exactly one of name and roleRef"
type PrincipalRole struct {
	// name is the name of a role on the key server, which may be a built-in role.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.trim() == self",message="must not begin or end with a space"
	// +optional
	Name *string `json:"name,omitempty"`
	// roleRef names a Role of this namespace.
	// +optional
	RoleRef *RoleReference `json:"roleRef,omitempty"`
}

// RoleReference names a Role of the same namespace.
// +structType=atomic
type RoleReference struct {
	// name is the name of the Role.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a Role: lower-case letters, digits, '-' and '.'"
	// +required
	Name string `json:"name,omitempty"`
}

// PrincipalMembership names one group.
type PrincipalMembership struct {
	// principalRef names a Principal of this namespace that is a group.
	// +required
	PrincipalRef PrincipalObjectReference `json:"principalRef,omitzero"`
}

// PrincipalDelegation says which principals may act with the rights of a principal.
// +kubebuilder:validation:XValidation:rule="(has(self.anybody) && self.anybody) != (has(self.delegates) && self.delegates.size() > 0)",message="give delegates, or anybody: true for all principals that may act for others; to allow none, leave delegation out"
type PrincipalDelegation struct {
	// anybody allows every principal that may act for other principals to act for this principal.
	// +optional
	Anybody bool `json:"anybody,omitempty"`
	// delegates is the complete set of principals that may act for this principal. No other principal may. Under
	// server-side apply, one field manager owns the complete list.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Delegates []PrincipalDelegate `json:"delegates,omitempty"`
}

// PrincipalDelegate names a principal that may act for another one.
type PrincipalDelegate struct {
	// principalRef names a Principal of this namespace that is not a group.
	// +required
	PrincipalRef PrincipalObjectReference `json:"principalRef,omitzero"`
}

// PrincipalObjectReference names a Principal of the same namespace.
// +structType=atomic
type PrincipalObjectReference struct {
	// name is the name of the Principal.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a Principal: lower-case letters, digits, '-' and '.'"
	// +required
	Name string `json:"name,omitempty"`
}

// PrincipalStatus is the last known state of the principal on the key server.
type PrincipalStatus struct {
	ManagedStatus `json:",inline"`

	// principalId is the id of the principal, 16 hexadecimal digits.
	// +optional
	PrincipalID string `json:"principalId,omitempty"`
	// name is the name of the principal on the key server.
	// +optional
	Name string `json:"name,omitempty"`
	// type is the type of the principal on the key server.
	// +optional
	Type PrincipalType `json:"type,omitempty"`
	// roleCount is the number of roles that the principal has directly.
	// +optional
	RoleCount *int32 `json:"roleCount,omitempty"`
	// groupIds are the ids of the groups of the principal.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	GroupIDs []string `json:"groupIds,omitempty"`
	// certificate is the last certificate that the key server issued from the request, as PEM.
	// +optional
	Certificate string `json:"certificate,omitempty"`
	// notBefore is when the certificate becomes valid.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty"`
	// notAfter is when the certificate expires.
	// +optional
	NotAfter *metav1.Time `json:"notAfter,omitempty"`
	// renewAfter is when the manager requests the next certificate from the key server.
	// +optional
	RenewAfter *metav1.Time `json:"renewAfter,omitempty"`
}

// Principal declares one principal of a key server: its identity and its rights.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,path=principals,shortName=ksp,categories=trust
// +kubebuilder:selectablefield:JSONPath=`.spec.keyServerRef.name`
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
	// metadata is the standard metadata of all objects.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec declares one principal: its identity, its rights, and which principals may act for it.
	// +required
	Spec PrincipalSpec `json:"spec"`
	// status counts as older than the spec until the manager has processed the object.
	// +default={"observedGeneration":-1}
	// +optional
	Status PrincipalStatus `json:"status,omitempty"`
}

// Managed returns the parts of the spec and the status that all kinds but KeyServer
// share.
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
