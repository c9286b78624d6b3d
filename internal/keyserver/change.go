package keyserver

import (
	"slices"
	"time"
)

// ChangeKind is the kind of object that changed.
type ChangeKind string

// The kinds of objects that a change can concern.
const (
	ChangeTrustedCA ChangeKind = "trustedCA"
	ChangeRole      ChangeKind = "role"
	ChangePrincipal ChangeKind = "principal"
	// ChangeKey is a change of a key or of its ACL. If too many keys changed to list them, the id is zero: any ACL may
	// have changed.
	ChangeKey     ChangeKind = "key"
	ChangeSession ChangeKind = "session"
	// ChangeTrustedServer has the system id of the peer as its id.
	ChangeTrustedServer  ChangeKind = "trustedServer"
	ChangePrincipalTrust ChangeKind = "principalTrust"
	ChangeCertificate    ChangeKind = "certificate"
	ChangeRevocation     ChangeKind = "revocation" // an issuer's policy or its CRL
	// ChangeACLTemplate is a change of a template or of its members.
	ChangeACLTemplate        ChangeKind = "aclTemplate"
	ChangeTemplatedDirectory ChangeKind = "templatedDirectory"
	// ChangeApprovalPolicy has a zero id: there is one policy.
	ChangeApprovalPolicy ChangeKind = "approvalPolicy"
	// ChangeDataKey has a zero id: it concerns all data keys.
	ChangeDataKey   ChangeKind = "dataKey"
	ChangeAuthority ChangeKind = "authority" // of this key server
)

// ChangeAction is the kind of change.
type ChangeAction string

// The actions.
const (
	Created ChangeAction = "created"
	Updated ChangeAction = "updated"
	Deleted ChangeAction = "deleted"
)

// Change is one committed change of state. Seq increases in commit order and has no gaps
// below a committed value.
type Change struct {
	Seq    int64
	Kind   ChangeKind
	ID     ID
	Action ChangeAction
}

// AnyWanted reports whether wanted returns true for one of the committed changes. An empty list means that some changes
// are no longer known; then the result is true.
func AnyWanted(changes []Change, wanted func(Change) bool) bool {
	return len(changes) == 0 || slices.ContainsFunc(changes, wanted)
}

// ChangeFilter selects changes after a cursor. If there are none, the read waits for the
// next change, at most 60 s.
type ChangeFilter struct {
	After int64
	Wait  time.Duration
}

// ChangePage is the result of a read of the change feed.
type ChangePage struct {
	Cursor  int64 // After of the next read
	Changes []Change
	// Reset reports that some changes after the given cursor are no longer stored: the
	// reader must read the complete state again.
	Reset bool
}
