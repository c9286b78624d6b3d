package keyserver

import "time"

// ApprovalState is how far an approval has come.
type ApprovalState string

// The states. Rejected and Executed are decisions, and stay. The others follow
// from the policy, the time and the standing of who approved at that moment.
const (
	ApprovalPending  ApprovalState = "pending"
	ApprovalApproved ApprovalState = "approved" // it may be executed
	ApprovalExpired  ApprovalState = "expired"
	ApprovalRejected ApprovalState = "rejected"
	ApprovalExecuted ApprovalState = "executed"
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
	// Operations are the keys of what the request needs, by which rules guard it.
	Operations []string
	CreatedAt  time.Time // times to the microsecond
	ExpiresAt  time.Time
	// Decision is empty until the request is rejected or executed.
	Decision  ApprovalState
	DecidedAt time.Time
	DecidedBy PrincipalRef
	// Votes are those who have approved, in the order in which they did.
	Votes []ApprovalVote
}

// ApprovalVote is somebody's approval.
type ApprovalVote struct {
	Principal PrincipalRef
	Name      string // when he approved
	At        time.Time
}
