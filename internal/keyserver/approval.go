package keyserver

import "time"

// ApprovalState is the state of an approval request.
type ApprovalState string

// The states. Rejected, Executed and Withdrawn are decisions and final. The other states are computed from the policy,
// the time and the current rights of the approvers.
const (
	ApprovalPending  ApprovalState = "pending"
	ApprovalApproved ApprovalState = "approved" // may be executed
	ApprovalExpired  ApprovalState = "expired"
	ApprovalRejected ApprovalState = "rejected"
	ApprovalExecuted ApprovalState = "executed"
	// ApprovalWithdrawn is a decision of the requester.
	ApprovalWithdrawn ApprovalState = "withdrawn"
)

// Approval is a request that needs the approval of other principals.
type Approval struct {
	ID        ID
	Asker     PrincipalRef
	AskerName string // at the time of the request
	Method    string
	Path      string // with the query
	Body      []byte // canonical JSON (RFC 8785); nil for none
	Reason    string
	Digest    [32]byte // SHA-256 of the RFC 8785 form of method, path and body
	// Operations are the keys of the operations that the request needs, and the key of its effect if it has one.
	// Approval rules name these keys.
	Operations []string
	CreatedAt  time.Time // times have microsecond precision
	ExpiresAt  time.Time
	// Decision is empty until the request is rejected, executed or withdrawn.
	Decision  ApprovalState
	DecidedAt time.Time
	DecidedBy PrincipalRef
	// Subjects are the requester and the objects that the request names, in their state at the time of the request.
	// Subjects is empty if a release without subjects stored the request.
	Subjects []ApprovalSubject
	// Votes are the approvals, oldest first.
	Votes []ApprovalVote
}

// SubjectKind is the kind of object that a name in a request stands for.
type SubjectKind string

// The kinds. A subject covers more than the object's own row. A principal includes its certificates and, if the
// principal is a group, the credentials of the members.
const (
	AskerSubject       SubjectKind = "asker"       // the credentials of the requester
	PrincipalSubject   SubjectKind = "principal"   // with everything that can act as the principal
	GroupSubject       SubjectKind = "group"       // without its members
	RoleSubject        SubjectKind = "role"        // without its holders
	HoldersSubject     SubjectKind = "holders"     // a role with its holders
	KeySubject         SubjectKind = "key"         // with its ACL
	PeerSubject        SubjectKind = "peer"        // with its transport principal
	TrustedCASubject   SubjectKind = "trustedCa"   //
	CertificateSubject SubjectKind = "certificate" // by its digest
	TransportSubject   SubjectKind = "transport"   // a transport principal, by its subject
	TemplateSubject    SubjectKind = "template"    // with its members
	DirectorySubject   SubjectKind = "directory"   // with its template
	TrustSubject       SubjectKind = "principalTrust"
	OwnerSubject       SubjectKind = "owner" // only the owner mark of an object
)

// SubjectKinds are all kinds.
var SubjectKinds = []SubjectKind{
	AskerSubject, PrincipalSubject, GroupSubject, RoleSubject, HoldersSubject, KeySubject, PeerSubject, TrustedCASubject,
	CertificateSubject, TransportSubject, TemplateSubject, DirectorySubject, TrustSubject,
	OwnerSubject,
}

// Subject identifies an object that a request names.
type Subject struct {
	Kind SubjectKind
	// Key identifies the object: usually by its id in hexadecimal digits. If the request has a system id, Key begins
	// with the system id and a slash. See package approval.
	Key string
}

// ApprovalSubject is a subject with the digest of its state at the time of the request.
type ApprovalSubject struct {
	Subject
	Digest [32]byte
}

// ApprovalVote is the approval of one principal.
type ApprovalVote struct {
	Principal PrincipalRef
	Name      string // at the time of the vote
	At        time.Time
}
