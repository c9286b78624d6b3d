package keyserver

import (
	"slices"
	"time"
)

// ChangeKind is the noun of a change.
type ChangeKind string

// The kinds of state that a change can be about.
const (
	ChangeTrustedCA ChangeKind = "trustedCA"
	ChangeRole      ChangeKind = "role"
	ChangePrincipal ChangeKind = "principal"
	// ChangeKey is the key itself or its access control list. A zero id stands
	// for more keys than are worth naming: any list may be different.
	ChangeKey     ChangeKind = "key"
	ChangeSession ChangeKind = "session"
	// ChangeTrustedServer has the system id as its id.
	ChangeTrustedServer  ChangeKind = "trustedServer"
	ChangePrincipalTrust ChangeKind = "principalTrust"
	ChangeCertificate    ChangeKind = "certificate"
	ChangeRevocation     ChangeKind = "revocation" // an issuer's policy or its CRL
	// ChangeACLTemplate is the template itself or its members.
	ChangeACLTemplate        ChangeKind = "aclTemplate"
	ChangeTemplatedDirectory ChangeKind = "templatedDirectory"
	// ChangeApprovalPolicy has a zero id: there is one policy.
	ChangeApprovalPolicy ChangeKind = "approvalPolicy"
	// ChangeDataKey has a zero id: it is about the data keys as a whole.
	ChangeDataKey   ChangeKind = "dataKey"
	ChangeAuthority ChangeKind = "authority" // of this key server's own
)

// ChangeAction is what happened.
type ChangeAction string

// The actions.
const (
	Created ChangeAction = "created"
	Updated ChangeAction = "updated"
	Deleted ChangeAction = "deleted"
)

// Change is one committed change of state. Seq grows in commit order and has
// no gaps below a committed value.
type Change struct {
	Seq    int64
	Kind   ChangeKind
	ID     ID
	Action ChangeAction
}

// Concerned reports whether one of the changes that committed is wanted. None at all
// say that some are no longer known, which concerns everybody.
func Concerned(changes []Change, wanted func(Change) bool) bool {
	return len(changes) == 0 || slices.ContainsFunc(changes, wanted)
}

// ChangeFilter reads the feed behind a cursor. Where nothing is there, the
// read waits for the next change, at most 60 s.
type ChangeFilter struct {
	After int64
	Wait  time.Duration
}

// ChangePage answers a read of the change feed.
type ChangePage struct {
	Cursor  int64 // pass as after next time
	Changes []Change
	// Reset says that changes after the given cursor are no longer all held:
	// the reader must read the state anew.
	Reset bool
}
