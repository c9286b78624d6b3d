package keyserver

import "time"

// ApprovalState is how far an approval has come.
type ApprovalState string

// The states. Rejected, Executed and Withdrawn are decisions, and stay. The others follow
// from the policy, the time and the standing of who approved at that moment.
const (
	ApprovalPending  ApprovalState = "pending"
	ApprovalApproved ApprovalState = "approved" // it may be executed
	ApprovalExpired  ApprovalState = "expired"
	ApprovalRejected ApprovalState = "rejected"
	ApprovalExecuted ApprovalState = "executed"
	// ApprovalWithdrawn is a decision of the asker.
	ApprovalWithdrawn ApprovalState = "withdrawn"
)

// Approval is a request that somebody asked others to approve.
type Approval struct {
	ID        ID
	Asker     PrincipalRef
	AskerName string // when it was asked for
	Method    string
	Path      string // with its query
	Body      []byte // as RFC 8785 spells it; nil where there is none
	Reason    string
	Digest    [32]byte // SHA-256 of the RFC 8785 form of method, path and body
	// Operations are the keys of what the request needs, and its effect where it has one,
	// by which rules guard it.
	Operations []string
	CreatedAt  time.Time // times to the microsecond
	ExpiresAt  time.Time
	// Decision is empty until the request is rejected, executed or withdrawn.
	Decision  ApprovalState
	DecidedAt time.Time
	DecidedBy PrincipalRef
	// Subjects are what the request names, and its asker, as they were when it was
	// asked for. Without any, it was asked for before they were kept.
	Subjects []ApprovalSubject
	// Votes are those who have approved, in the order in which they did.
	Votes []ApprovalVote
}

// SubjectKind says what a name in a request stands for.
type SubjectKind string

// The kinds. What a name stands for is more than its own row: a principal comes
// with its certificates and, where it is a group, with what its members log in by.
const (
	AskerSubject       SubjectKind = "asker"       // what the asker logs in by
	PrincipalSubject   SubjectKind = "principal"   // whoever can become it included
	GroupSubject       SubjectKind = "group"       // without its members
	RoleSubject        SubjectKind = "role"        // without its holders
	HoldersSubject     SubjectKind = "holders"     // a role with whoever holds it
	KeySubject         SubjectKind = "key"         // with its access control list
	PeerSubject        SubjectKind = "peer"        // with its transport principal
	TrustedCASubject   SubjectKind = "trustedCa"   //
	CertificateSubject SubjectKind = "certificate" // by its digest
	TransportSubject   SubjectKind = "transport"   // a transport principal, by its subject
	TemplateSubject    SubjectKind = "template"    // with its members
	DirectorySubject   SubjectKind = "directory"   // with its template
	TrustSubject       SubjectKind = "principalTrust"
	OwnerSubject       SubjectKind = "owner" // the owner mark of an object, without the object
)

// SubjectKinds are all of them.
var SubjectKinds = []SubjectKind{
	AskerSubject, PrincipalSubject, GroupSubject, RoleSubject, HoldersSubject, KeySubject, PeerSubject, TrustedCASubject,
	CertificateSubject, TransportSubject, TemplateSubject, DirectorySubject, TrustSubject,
	OwnerSubject,
}

// Subject is a name in a request.
type Subject struct {
	Kind SubjectKind
	// Key is the name: mostly an id in hexadecimal digits, behind its system and a
	// slash where that is said; see package approval.
	Key string
}

// ApprovalSubject is what a name stood for.
type ApprovalSubject struct {
	Subject
	Digest [32]byte
}

// ApprovalVote is somebody's approval.
type ApprovalVote struct {
	Principal PrincipalRef
	Name      string // when he approved
	At        time.Time
}
