package keyserver

import "time"

// ApprovalState is the state of an approval request.
type ApprovalState string

// The states. Rejected, Executed and Withdrawn are decisions and final. The others are
// computed from the policy, the time and the rights that the approvers have at that time.
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
	Body      []byte // in the form of RFC 8785; nil for none
	Reason    string
	Digest    [32]byte // SHA-256 of the RFC 8785 form of method, path and body
	// Operations are the keys of the operations, and of the effect if there is one, that
	// the request needs. Rules guard it by these.
	Operations []string
	CreatedAt  time.Time // times have microsecond precision
	ExpiresAt  time.Time
	// Decision is empty until the request is rejected, executed or withdrawn.
	Decision  ApprovalState
	DecidedAt time.Time
	DecidedBy PrincipalRef
	// Subjects are the objects that the request names, and the requester, as they were at
	// the time of the request. It is empty for requests from before subjects were stored.
	Subjects []ApprovalSubject
	// Votes are the approvals, oldest first.
	Votes []ApprovalVote
}

// SubjectKind is the kind of object that a name in a request stands for.
type SubjectKind string

// The kinds. A subject covers more than the object's own row. A principal includes its
// certificates and, if it is a group, the credentials of its members.
const (
	AskerSubject       SubjectKind = "asker"       // the credentials of the requester
	PrincipalSubject   SubjectKind = "principal"   // with everything that can act as it
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

// Subject is a name in a request.
type Subject struct {
	Kind SubjectKind
	// Key is the name: usually an id in hexadecimal digits, with its system id and a
	// slash before it if the request has one; see package approval.
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
