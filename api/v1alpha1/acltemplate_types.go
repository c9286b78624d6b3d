package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ACLTemplateSpec declares one ACL template with all its members.
type ACLTemplateSpec struct {
	ManagedSpec `json:",inline"`

	// TemplateName is the name of the template on the key server. Changing it
	// renames the template: its identity is status.templateId, and the
	// directories that use it go on using it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.trim() == self && !self.matches('[[:cntrl:]]')",message="must not begin or end with a space or hold control characters"
	TemplateName string `json:"templateName"`

	// Members is the complete list of members, but for the principal that the
	// manager logs in as: it made the template, or must be a member that holds
	// WRITE to change it, so that it stays a member whether it is listed or not.
	// Left out, the list is empty: server-side apply of an emptied list leaves it
	// out. Under server-side apply, several managers may each own some of them.
	// +listType=map
	// +listMapKey=principal
	// +kubebuilder:validation:MaxItems=255
	// +kubebuilder:default:={}
	// +optional
	Members []ACLTemplateMember `json:"members"`

	// Directories is the complete set of paths whose new keys get the members
	// on their access control list, each without or with its trailing slash.
	// Left out, the directories are left as they are; server-side apply of an
	// emptied list leaves it out, so that the last of them stay.
	// +listType=set
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:items:XValidation:rule="!self.matches('[[:cntrl:]]') && !self.matches('.//') && !self.matches('(^|/)[.][.]?(/|$)')",message="must be the plain path of a directory: no segment is empty, '.' or '..', and there are no control characters"
	// +optional
	Directories []string `json:"directories,omitempty"`
}

// ACLTemplateMember is one principal with its rights.
// +kubebuilder:validation:XValidation:rule="!has(self.startTime) || !has(self.endTime) || self.startTime < self.endTime",message="endTime must be after startTime"
type ACLTemplateMember struct {
	// Principal is a principal of the key server by type and name,
	// "password/admin" or "group/Signers" (types: password, certificate, ldap,
	// xauth, group), or one of any key server by its system id and its decimal
	// id, "id/7/1234567890".
	// +kubebuilder:validation:MaxLength=544
	// +kubebuilder:validation:XValidation:rule="self.matches('^(password|certificate|ldap|xauth|group)/.+$') || self.matches('^id/(0|[1-9][0-9]{0,9})/[1-9][0-9]{0,19}$')",message="must be TYPE/NAME with a type of password, certificate, ldap, xauth or group, or id/SYSTEM/PRINCIPAL with both ids in decimal"
	Principal string `json:"principal"`

	// Rights that the member gets on each key. WRITE brings READ with it, and
	// OWNER brings both, whether they are listed or not.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=5
	Rights []Right `json:"rights"`

	// MaxUsage is how many grants an entry is good for; 0 is none. Left out, it
	// is any number.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740992
	// +optional
	MaxUsage *int64 `json:"maxUsage,omitempty"`
	// StartTime is when the rights begin. Left out, they begin at once.
	// +kubebuilder:validation:XValidation:rule="self > timestamp('1970-01-01T00:00:00Z')",message="must be after 1970-01-01T00:00:00Z"
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// EndTime is when the rights end. Left out, they do not.
	// +kubebuilder:validation:XValidation:rule="self > timestamp('1970-01-01T00:00:00Z')",message="must be after 1970-01-01T00:00:00Z"
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`
}

// Right is one right on a key.
// +kubebuilder:validation:Enum=READ;WRITE;OWNER;MANDATORY_GROUP;HOST_MATRIX
type Right string

// ACLTemplateStatus is what is known of the template on the key server.
type ACLTemplateStatus struct {
	ManagedStatus `json:",inline"`

	// TemplateID is the id of the template, 16 hexadecimal digits.
	// +optional
	TemplateID string `json:"templateId,omitempty"`
	// MemberCount is the number of members, the manager's own principal included.
	// +optional
	MemberCount *int32 `json:"memberCount,omitempty"`
	// DirectoryCount is the number of directories that use the template.
	// +optional
	DirectoryCount *int32 `json:"directoryCount,omitempty"`
}

// ACLTemplate declares who gets which rights on keys made under a path.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,path=acltemplates,shortName=aclt,categories=trust
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
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ACLTemplateSpec `json:"spec"`
	// Until the manager has been here, the status counts as behind the spec.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status ACLTemplateStatus `json:"status,omitempty"`
}

// Managed returns what the object shares with every other kind.
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
