package keyserver

import (
	"slices"
	"time"
)

// GateStep is one question of the gate. It asks them in this order, and none behind the
// first that refuses.
type GateStep string

// The steps.
const (
	StepCurrent     GateStep = "current"     // does the process know every change that is a second old
	StepDelegation  GateStep = "delegation"  // may whoever acts for another do so still
	StepPrincipal   GateStep = "principal"   // is there such a principal, and is it enabled
	StepCertificate GateStep = "certificate" // is the one that the session was opened with in force
	StepLent        GateStep = "lent"        // is the operation one that is done for another
	StepRole        GateStep = "role"        // does a role grant the operation
	StepScope       GateStep = "scope"       // does a scoped credential cover operation and key
	StepApproval    GateStep = "approval"    // does the operation take an approval, and is it there
	StepTransport   GateStep = "transport"   // is the caller one that logged in with a certificate
	StepKey         GateStep = "key"         // is there such a key
	StepExposure    GateStep = "exposure"    // may the peer that owns the key be told of the principal
	StepList        GateStep = "list"        // does the access control list of the key let the principal
	StepState       GateStep = "state"       // does what the key is, and its state, permit the use
	StepUses        GateStep = "uses"        // is a use left, where the list limits them, and of the key itself
	StepOwner       GateStep = "owner"       // what the peer that owns the key would say
)

// GateSteps are all of them, in order.
var GateSteps = []GateStep{
	StepCurrent, StepDelegation, StepPrincipal, StepCertificate, StepLent, StepRole, StepScope, StepApproval,
	StepTransport, StepKey, StepExposure, StepList, StepState, StepUses, StepOwner,
}

// StepOutcome is what became of a step.
type StepOutcome string

// The outcomes.
const (
	StepPassed   StepOutcome = "passed"
	StepRefused  StepOutcome = "refused"
	StepNotAsked StepOutcome = "notAsked" // somebody else decides
)

// Cause is the object by which a step came out as it did.
type Cause struct {
	Kind   ChangeKind
	ID     ID
	System SystemID // of a principal that another key server may own
	Name   string
	// Demands: the list demands membership of it.
	Demands bool
	// Start and End are the window of an entry that gives rights; unset where it is open, and
	// of what else there is.
	Start, End Stamp
}

// ExplainedStep is a step as it came out.
type ExplainedStep struct {
	Step    GateStep
	Outcome StepOutcome
	By      *Cause
	Detail  string
}

// Question is what the gate is asked without anything being done.
type Question struct {
	Operation Operation // or an effect of one
	// Link is the key that the operation is about; empty where it is about none.
	Link HiddenLink
	// Principal is who would ask; nil for the caller, in this session.
	Principal *ID
	// At is a change that the answer has to know; 0 for none.
	At int64
	// With are changes that are supposed.
	With []Supposition
	// Bare: nobody wants to know what would turn the answer round.
	Bare bool
}

// SuppositionKind says what is supposed.
type SuppositionKind string

// The kinds of what can be supposed, each with the fields that it takes.
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

// Supposition is a change that the gate is asked to take for made. Principals are those of
// this key server; of an entry it may be another's.
type Supposition struct {
	Kind      SuppositionKind
	Principal ID
	Role      ID
	Group     ID
	// Name is what the role or the group is called. Nothing goes by it.
	Name   string
	System SystemID
	// Link is the key, empty for that of the question: of a line another one may be asked.
	Link       HiddenLink
	Rights     Rights
	MaxUsage   int64
	Start, End Stamp
}

// MaxSuppositions is how many changes one question may suppose.
const MaxSuppositions = 16

// MaxRolesNamed is how many roles an explanation names that would do.
const MaxRolesNamed = 16

// Explanation is what the gate would answer, and why.
type Explanation struct {
	Allowed bool
	// Refusal is the fault that the operation would be refused with; nil where it is let.
	Refusal error
	Steps   []ExplainedStep
	// Uses is how many uses the list leaves; nil where it does not limit them, or the caller
	// may not ask for it.
	Uses *int64
	// Change is what would turn the answer round, the fewest changes that were found; nil
	// where there is nothing that could be supposed, or the caller may not ask for it.
	Change []Supposition
	// Roles are those that would do as well where Change gives one, that with the fewest
	// operations first, and MaxRolesNamed at most.
	Roles []Cause
	// Principal is who would ask.
	Principal ID
	// Asked is the key whose list was asked: that of the question, or one of its line. Entry
	// is the one there of who would ask; nil where there is none.
	Asked HiddenLink
	Entry *ACLEntry
	// Sequence is the last change when the question was answered, 0 where the caller may not
	// ask for it. Staleness is how long before the answer the process last knew every change.
	Sequence  int64
	Staleness time.Duration
}

// Crowd asks who may do something.
type Crowd struct {
	Operation Operation
	Link      HiddenLink // empty: whoever has a role for it
	After     ID         // those behind this id
	Limit     int
}

// Capable is somebody who may.
type Capable struct {
	Principal PrincipalRef
	Name      string
	Type      PrincipalType
	By        []Cause // role, and entry of the list
}

// CrowdPage is a page of them, by id.
type CrowdPage struct {
	Who []Capable
	// Elsewhere are principals of peers that the list lets; whether a role grants them the
	// operation their own key server says. On the first page alone.
	Elsewhere []Capable
	Next      ID // zero at the end
}

// AboutKey reports whether the operation is about one key, so that the key's list has a
// say.
func (op Operation) AboutKey() bool {
	switch op.ID {
	case OpReadKey.ID, OpAuthorizeKey.ID, OpHMAC.ID, OpMACData.ID, OpVerifyMAC.ID, OpEncrypt.ID, OpDecrypt.ID,
		OpReadACL.ID, OpAmendACL.ID, OpExportKey.ID, OpChangeKeyState.ID, OpRotateKey.ID:
		return true
	default:
		return false
	}
}

// OperationNamed returns the operation of the catalogue, or the effect of one, that a key
// names.
func OperationNamed(key string) (Operation, bool) {
	for _, list := range [][]Operation{Operations, Effects} {
		if i := slices.IndexFunc(list, func(op Operation) bool { return op.Key == key }); i >= 0 {
			return list[i], true
		}
	}
	return Operation{}, false
}

// SuppositionField is a field of a supposition, by its name on the wire.
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

// Fields are those that a kind takes, and whether it needs them.
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
