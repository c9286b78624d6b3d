package keyserver

import (
	"slices"
	"time"
)

// GateStep is one check of the authorizer. The checks run in this order and stop at the first
// refusal.
type GateStep string

// The steps.
const (
	StepCurrent     GateStep = "current"     // does the process know every change that is at least one second old
	StepDelegation  GateStep = "delegation"  // may the actor of a delegated session still act for the delegator
	StepPrincipal   GateStep = "principal"   // does the principal exist, and is it enabled
	StepCertificate GateStep = "certificate" // is the certificate that opened the session in force
	StepDelegable   GateStep = "lent"        // is the operation allowed in a delegated session
	StepRole        GateStep = "role"        // does a role grant the operation
	StepScope       GateStep = "scope"       // does a scoped credential cover the operation and the key
	StepApproval    GateStep = "approval"    // if the operation needs an approval, does it have one
	StepTransport   GateStep = "transport"   // did the caller log in with a certificate
	StepKey         GateStep = "key"         // does the key exist
	StepExposure    GateStep = "exposure"    // may the peer that owns the key learn of the principal
	StepACL         GateStep = "list"        // does the ACL of the key allow the principal
	StepState       GateStep = "state"       // do the type and state of the key permit the use
	StepUses        GateStep = "uses"        // is a use left: in the ACL entry, if it limits uses, and of the key itself
	StepOwner       GateStep = "owner"       // the decision of the peer that owns the key
)

// GateSteps are all steps, in order.
var GateSteps = []GateStep{
	StepCurrent, StepDelegation, StepPrincipal, StepCertificate, StepDelegable, StepRole, StepScope, StepApproval,
	StepTransport, StepKey, StepExposure, StepACL, StepState, StepUses, StepOwner,
}

// StepOutcome is the result of a step.
type StepOutcome string

// The outcomes.
const (
	StepPassed   StepOutcome = "passed"
	StepRefused  StepOutcome = "refused"
	StepNotAsked StepOutcome = "notAsked" // another key server decides
)

// Cause is the object that determined the outcome of a step.
type Cause struct {
	Kind   ChangeKind
	ID     ID
	System SystemID // set for a principal that another key server may own
	Name   string
	// Demands: the ACL requires membership of this group.
	Demands bool
	// Start and End are the time window of an entry that grants rights. They are unset if the
	// window is open, and for every other cause.
	Start, End Stamp
}

// ExplainedStep is a step with its outcome.
type ExplainedStep struct {
	Step    GateStep
	Outcome StepOutcome
	By      *Cause
	Detail  string
}

// Question asks the authorizer for a decision without performing the operation.
type Question struct {
	Operation Operation // or an effect of one
	// Link is the key that the operation concerns; empty if it concerns none.
	Link HiddenLink
	// Principal is the principal to decide for; nil for the caller in this session.
	Principal *ID
	// At is the sequence number of a change that the decision must include; 0 for none.
	At int64
	// With are changes that the decision assumes as made.
	With []Supposition
	// OmitChanges requests an answer without the changes that would reverse the decision.
	OmitChanges bool
}

// SuppositionKind is the kind of a hypothetical change.
type SuppositionKind string

// The kinds of suppositions, each with the fields that it takes.
const (
	SupposeRole     SuppositionKind = "giveRole"     // Principal, Role, Name
	SupposeNoRole   SuppositionKind = "takeRole"     // Principal, Role, Name
	SupposeMember   SuppositionKind = "addMember"    // Principal, Group, Name
	SupposeLeft     SuppositionKind = "removeMember" // Principal, Group, Name
	SupposeEnabled  SuppositionKind = "enable"       // Principal
	SupposeDisabled SuppositionKind = "disable"      // Principal
	SupposeEntry    SuppositionKind = "setEntry"     // Principal, System, Link, Rights, MaxUsage, Start, End
	SupposeNoEntry  SuppositionKind = "removeEntry"  // Principal, System, Link
	SupposeExposed  SuppositionKind = "expose"       // Principal, System of the peer
	SupposeHidden   SuppositionKind = "restrict"     // Principal, System of the peer
	SupposeState    SuppositionKind = "enableKey"    // Link
	SupposeApproval SuppositionKind = "approve"      // the operation of the question
)

// Supposition is a change that the authorizer treats as made. Its principals belong to this key server; only the
// principal of an ACL entry may belong to another key server.
type Supposition struct {
	Kind      SuppositionKind
	Principal ID
	Role      ID
	Group     ID
	// Name is the name of the role or the group. It has no effect.
	Name   string
	System SystemID
	// Link is the key; empty for the key of the question. If the question is about a key lineage, Link may be another
	// key of the lineage.
	Link       HiddenLink
	Rights     Rights
	MaxUsage   int64
	Start, End Stamp
}

// MaxSuppositions limits the suppositions of one question.
const MaxSuppositions = 16

// MaxRolesNamed limits the alternative roles that an explanation names.
const MaxRolesNamed = 16

// Explanation is the predicted decision of the authorizer, with its reasons.
type Explanation struct {
	Allowed bool
	// Refusal is the fault that would refuse the operation; nil if it is allowed.
	Refusal error
	Steps   []ExplainedStep
	// Uses is the number of uses that the ACL leaves. It is nil if the ACL has no limit, or
	// the caller may not know the number.
	Uses *int64
	// Change is the smallest set of changes found that would reverse the decision. It is nil
	// if no supposition would, or the caller may not know it.
	Change []Supposition
	// Roles are alternatives to the role that Change grants. They are sorted by number of
	// operations, fewest first, at most MaxRolesNamed.
	Roles []Cause
	// Principal is the principal that the decision is for.
	Principal ID
	// Asked is the key whose ACL was checked: the key of the question, or one key of its lineage. Entry is the
	// principal's entry in that ACL; nil if there is none.
	Asked HiddenLink
	Entry *ACLEntry
	// Sequence is the number of the last change that the decision includes, 0 if the caller may not know it. Staleness
	// is the time since the process last knew every change.
	Sequence  int64
	Staleness time.Duration
}

// WhoCanQuery asks which principals may perform an operation.
type WhoCanQuery struct {
	Operation Operation
	Link      HiddenLink // empty: every principal with a suitable role
	After     ID         // only principals after this id
	Limit     int
}

// Capable is a principal that may perform the operation.
type Capable struct {
	Principal PrincipalRef
	Name      string
	Type      PrincipalType
	By        []Cause // roles, and the ACL entry
}

// WhoCanPage is a page of capable principals, sorted by id.
type WhoCanPage struct {
	Principals []Capable
	// Foreign are principals of peers that the ACL allows. Whether a role grants them the
	// operation is decided by their own key server. Only the first page has them.
	Foreign []Capable
	Next    ID // zero at the end
}

// AboutKey reports whether the operation concerns one key, so that the key's ACL is checked.
func (op Operation) AboutKey() bool {
	switch op.ID {
	case OpReadKey.ID, OpAuthorizeKey.ID, OpHMAC.ID, OpMACData.ID, OpVerifyMAC.ID, OpEncrypt.ID, OpDecrypt.ID,
		OpReadACL.ID, OpAmendACL.ID, OpExportKey.ID, OpChangeKeyState.ID, OpRotateKey.ID:
		return true
	default:
		return false
	}
}

// OperationNamed returns the operation of the catalogue, or the effect, with the given key.
func OperationNamed(key string) (Operation, bool) {
	for _, list := range [][]Operation{Operations, Effects} {
		if i := slices.IndexFunc(list, func(op Operation) bool { return op.Key == key }); i >= 0 {
			return list[i], true
		}
	}
	return Operation{}, false
}

// SuppositionField is a field of a supposition, by its name in JSON.
type SuppositionField string

// The fields.
const (
	SupposesPrincipal SuppositionField = "principalId"
	SupposesRole      SuppositionField = "roleId"
	SupposesGroup     SuppositionField = "groupId"
	SupposesName      SuppositionField = "name"
	SupposesSystem    SuppositionField = "systemId"
	SupposesKey       SuppositionField = "hiddenLink"
	SupposesRights    SuppositionField = "rights"
	SupposesUses      SuppositionField = "maxUsage"
	SupposesStart     SuppositionField = "startTime"
	SupposesEnd       SuppositionField = "endTime"
)

// Fields returns the fields of a supposition of the kind: true if the field is required.
func (k SuppositionKind) Fields() map[SuppositionField]bool {
	switch k {
	case SupposeRole, SupposeNoRole:
		return map[SuppositionField]bool{SupposesPrincipal: true, SupposesRole: true, SupposesName: false}
	case SupposeMember, SupposeLeft:
		return map[SuppositionField]bool{SupposesPrincipal: true, SupposesGroup: true, SupposesName: false}
	case SupposeEnabled, SupposeDisabled:
		return map[SuppositionField]bool{SupposesPrincipal: true}
	case SupposeEntry:
		return map[SuppositionField]bool{SupposesPrincipal: true, SupposesSystem: false, SupposesKey: false, SupposesRights: true, SupposesUses: false, SupposesStart: false, SupposesEnd: false}
	case SupposeNoEntry:
		return map[SuppositionField]bool{SupposesPrincipal: true, SupposesSystem: false, SupposesKey: false}
	case SupposeState:
		return map[SuppositionField]bool{SupposesKey: false}
	case SupposeExposed, SupposeHidden:
		return map[SuppositionField]bool{SupposesPrincipal: true, SupposesSystem: true}
	default:
		return nil
	}
}
