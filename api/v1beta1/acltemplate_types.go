package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ACLTemplateSpec declares one ACL template with all its members.
type ACLTemplateSpec struct {
	ManagedSpec `json:",inline"`

	// templateName is the name of the template on the key server. A change renames the template: status.templateId
	// stays, and directories continue to use the template.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.trim() == self && !self.matches('[[:cntrl:]]')",message="must not begin or end with a space or hold control characters"
	// +required
	TemplateName string `json:"templateName,omitempty"`

	// members is the complete list of members, except the principal that the manager logs in as. That principal stays a
	// member whether it is listed or not: it created the template, or needs WRITE to change it. An omitted list is
	// empty, because server-side apply omits an emptied list. Under server-side apply, several managers can each own
	// some members.
	// +listType=map
	// +listMapKey=principal
	// +kubebuilder:validation:MaxItems=255
	// +default=[]
	// +optional
	Members []ACLTemplateMember `json:"members"`

	// directories is the complete set of paths under which new keys get the members as ACL entries. A slash at the end
	// is optional. If the set is omitted, the directories stay unchanged. Server-side apply omits an emptied set, so
	// the last directories stay.
	// +listType=set
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:items:XValidation:rule="!self.matches('[[:cntrl:]]') && !self.matches('.//') && !self.matches('(^|/)[.][.]?(/|$)')",message="must be the plain path of a directory: no segment is empty, '.' or '..', and there are no control characters"
	// +optional
	Directories []string `json:"directories,omitempty"`
}

// ACLTemplateMember is one principal with its rights.
// +kubebuilder:validation:XValidation:fieldPath=".endTime",rule="!has(self.startTime) || !has(self.endTime) || self.startTime < self.endTime",message="endTime must be after startTime"
type ACLTemplateMember struct {
	// principal is a principal of the key server by type and name, such as "password/admin" or "group/Signers". The
	// types are password, certificate, ldap, xauth and group. Or it is a principal of any key server by its system id
	// and its decimal id, such as "id/7/1234567890".
	// +kubebuilder:validation:MaxLength=544
	// +kubebuilder:validation:XValidation:rule="self.matches('^(password|certificate|ldap|xauth|group)/.+$') || self.matches('^id/(0|[1-9][0-9]{0,9})/[1-9][0-9]{0,19}$')",message="must be TYPE/NAME with a type of password, certificate, ldap, xauth or group, or id/SYSTEM/PRINCIPAL with both ids in decimal"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^id/[0-9]{1,10}/') || int(self.split('/')[1]) <= 4294967295",message="must have a system id of at most 4294967295"
	// +required
	Principal string `json:"principal"`

	// rights are the rights that the member gets on each key. WRITE includes READ, and OWNER includes both.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=5
	// +required
	Rights []Right `json:"rights,omitempty"`

	// maxUsage is the number of uses that an ACL entry allows; 0 allows none. If it is omitted, uses are not limited.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740992
	// +optional
	MaxUsage *int64 `json:"maxUsage,omitempty"`
	// startTime is when the rights begin. If it is omitted, the rights begin immediately.
	// +kubebuilder:validation:XValidation:rule="self > timestamp('1970-01-01T00:00:00Z')",message="must be after 1970-01-01T00:00:00Z"
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// endTime is when the rights end. If it is omitted, the rights do not end.
	// +kubebuilder:validation:XValidation:rule="self > timestamp('1970-01-01T00:00:00Z')",message="must be after 1970-01-01T00:00:00Z"
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`
}

// Right is one right on a key.
// +kubebuilder:validation:Enum=READ;WRITE;OWNER;MANDATORY_GROUP;HOST_MATRIX
type Right string

// ACLTemplateStatus is the last known state of the template on the key server.
type ACLTemplateStatus struct {
	ManagedStatus `json:",inline"`

	// templateId is the id of the template, 16 hexadecimal digits.
	// +optional
	TemplateID string `json:"templateId,omitempty"`
	// memberCount is the number of members, including the manager's principal.
	// +optional
	MemberCount *int32 `json:"memberCount,omitempty"`
	// directoryCount is the number of directories that use the template.
	// +optional
	DirectoryCount *int32 `json:"directoryCount,omitempty"`
}

// ACLTemplate declares which principals get which rights on keys that are created under a
// path.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,path=acltemplates,shortName=aclt,categories=trust
// +kubebuilder:selectablefield:JSONPath=`.spec.keyServerRef.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Verified",type=string,JSONPath=`.status.conditions[?(@.type=="Verified")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Template",type=string,JSONPath=`.status.templateId`
// +kubebuilder:printcolumn:name="Members",type=integer,JSONPath=`.status.memberCount`
// +kubebuilder:printcolumn:name="Directories",type=integer,JSONPath=`.status.directoryCount`
// +kubebuilder:printcolumn:name="KeyServer",type=string,JSONPath=`.spec.keyServerRef.name`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ACLTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard metadata of all objects.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec declares one ACL template with all its members.
	// +required
	Spec ACLTemplateSpec `json:"spec,omitzero"`
	// status counts as older than the spec until the manager has processed the object.
	// +default={"observedGeneration":-1}
	// +optional
	Status ACLTemplateStatus `json:"status,omitempty"`
}

// Managed returns the parts of the spec and the status that all kinds but KeyServer
// share.
func (t *ACLTemplate) Managed() (*ManagedSpec, *ManagedStatus) {
	return &t.Spec.ManagedSpec, &t.Status.ManagedStatus
}

// ACLTemplateList is a list of ACLTemplates.
//
// +kubebuilder:object:root=true
type ACLTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ACLTemplate `json:"items"`
}
