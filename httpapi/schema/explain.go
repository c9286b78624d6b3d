package schema

import (
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// OperationName is an operation of the catalogue, by its name in the audit log.
type OperationName string

var errOperationName = errors.New("must be an operation of GET /api/operations, for instance hmacData")

// MarshalText encodes the name.
func (n OperationName) MarshalText() ([]byte, error) { return []byte(n), nil }

// UnmarshalText accepts the name of an existing operation.
func (n *OperationName) UnmarshalText(text []byte) error {
	if _, found := keyserver.OperationNamed(string(text)); !found {
		return errOperationName
	}
	*n = OperationName(text)
	return nil
}

// ExplainRequest asks for a decision of the gate and its reasons.
type ExplainRequest struct {
	Operation   OperationName `json:"operation" doc:"What would be done."`
	HiddenLink  *HiddenLink   `json:"hiddenLink,omitzero" names:"-" doc:"The key that the operation is about. Left out, no list is asked."`
	PrincipalID *HexID        `json:"principalId,omitzero" names:"-" example:"-" doc:"Who would ask, with a session of his own. Left out: the caller, in this session."`
	Address     *IPAddress    `json:"address,omitzero" example:"-" doc:"Where the request would come from. No question of the gate is about it, so that it changes nothing."`
	At          *int64        `json:"at,omitzero" limit:"1..9007199254740992" example:"-" doc:"A change, as GET /api/changes numbers them, that the answer has to know."`
	With        []Supposition `json:"with,omitzero" items:"1..16" example:"-" doc:"Changes that are taken for made. Nothing is changed."`
}

// Supposition is a hypothetical change, or a change that would reverse a decision.
type Supposition struct {
	Change      string      `json:"change" enum:"giveRole,takeRole,addMember,removeMember,enable,disable,setEntry,removeEntry,expose,restrict,enableKey,approve" doc:"What is changed. Each takes the fields that name it."`
	PrincipalID *HexID      `json:"principalId,omitzero" names:"-" doc:"Of all but enableKey and approve: whom it is about."`
	RoleID      *HexID      `json:"roleId,omitzero" names:"-" doc:"giveRole, takeRole."`
	GroupID     *HexID      `json:"groupId,omitzero" names:"-" doc:"addMember, removeMember."`
	Name        *string     `json:"name,omitzero" example:"-" doc:"giveRole, takeRole, addMember, removeMember: what the role or the group is called, for people. Whatever stands here, the id counts."`
	SystemID    *SystemID   `json:"systemId,omitzero" names:"-" doc:"setEntry, removeEntry: the key server of the principal, this one where left out. expose, restrict: the peer."`
	HiddenLink  *HiddenLink `json:"hiddenLink,omitzero" names:"-" doc:"setEntry, removeEntry, enableKey: the key, that of the question where left out. Of a line another one may be asked."`
	Rights      []string    `json:"rights,omitzero" items:"1..5" enum:"OWNER,READ,WRITE,MANDATORY_GROUP,HOST_MATRIX" doc:"setEntry: the rights of the entry, which takes the place of the one that there is."`
	MaxUsage    *int64      `json:"maxUsage,omitzero" limit:"-1..9007199254740992" doc:"setEntry: as POST /api/keys/acl/grant has it."`
	StartTime   *Stamp      `json:"startTime,omitzero" doc:"setEntry: likewise."`
	EndTime     *Stamp      `json:"endTime,omitzero" doc:"setEntry: likewise."`
}

// Explanation is a decision of the gate with its reasons.
type Explanation struct {
	Allowed     bool          `json:"allowed" doc:"The gate would let the operation through. What the operation itself refuses, once let, is not asked."`
	Code        string        `json:"code" doc:"What it would be refused with; empty where it is let."`
	Reason      string        `json:"reason" doc:"As the audit row of the refusal has it; empty where it is let."`
	Detail      string        `json:"detail" doc:"For people; its wording may change."`
	PrincipalID HexID         `json:"principalId" doc:"Who would ask."`
	Steps       []GateStep    `json:"steps" doc:"The questions of the gate in its order, up to the one that refuses."`
	Uses        *int64        `json:"uses" doc:"How many uses the list leaves; null where it does not limit them, or the caller lacks Explain Access."`
	EvidenceAge int64         `json:"evidenceAge" doc:"How many milliseconds old the evidence of the answer is, rounded up: the time since the process last knew every change of the database."`
	Sequence    int64         `json:"sequence" doc:"The last change when the question was answered; 0 where the caller lacks Explain Access."`
	Change      []Supposition `json:"change" doc:"The fewest changes found that would turn the answer round, as with takes them. Empty where there are none that could be supposed, or the caller lacks Explain Access."`
	Roles       []GateBy      `json:"roles" doc:"Where change gives a role, each that would do, the one with the fewest operations first, which change has: 16 at most. Otherwise empty."`
}

// GateStep is one check of the gate.
type GateStep struct {
	Step    string  `json:"step" enum:"current,delegation,principal,certificate,lent,role,scope,approval,transport,key,exposure,list,state,uses,owner" doc:"Which."`
	Outcome string  `json:"outcome" enum:"passed,refused,notAsked" doc:"notAsked: another key server decides."`
	By      *GateBy `json:"by" doc:"The object by which it came out so; null where there is none, or the caller lacks Explain Access."`
	Detail  string  `json:"detail" doc:"For people; its wording may change."`
}

// GateBy names an object.
type GateBy struct {
	Kind      string    `json:"kind" enum:"role,principal" doc:"As the change feed has it. A principal is the one of the list's entry."`
	ID        HexID     `json:"id"`
	SystemID  *SystemID `json:"systemId" doc:"Of a principal: its key server. Null of a role."`
	Name      string    `json:"name" doc:"Empty where this key server does not know it."`
	StartTime *Stamp    `json:"startTime" doc:"Of an entry that gives rights: when it begins to; null where it has no beginning, and of all else."`
	EndTime   *Stamp    `json:"endTime" doc:"Of an entry that gives rights: when it ceases to; null where it has no end, and of all else."`
}

// WhoCanRequest asks which principals may perform an operation.
type WhoCanRequest struct {
	Operation  OperationName `json:"operation" doc:"What would be done."`
	HiddenLink *HiddenLink   `json:"hiddenLink,omitzero" names:"-" doc:"The key that the operation is about. Left out, whoever a role grants the operation."`
	Limit      *int          `json:"limit,omitzero" limit:"1..1000" doc:"Principals in a page, 100 when left out."`
	After      *HexID        `json:"after,omitzero" names:"-" example:"-" doc:"The next of an earlier page."`
}

// WhoCanPage is a page of these principals, sorted by id.
type WhoCanPage struct {
	Count     int       `json:"count" doc:"Of this page. A page may be short, and still not the last."`
	Who       []Capable `json:"who" doc:"Principals of this key server whom the gate would let, with a session of their own."`
	Elsewhere []Capable `json:"elsewhere" doc:"Principals of peers whom the key's list lets; whether a role grants them the operation their own key server says. On the first page."`
	Next      *HexID    `json:"next" doc:"What the next page is after, or null where this is the last."`
	Detail    string    `json:"detail" doc:"For people; its wording may change."`
}

// Capable is a principal that may perform the operation.
type Capable struct {
	PrincipalID HexID    `json:"principalId"`
	SystemID    SystemID `json:"systemId" doc:"The key server that owns the principal."`
	Name        string   `json:"name" doc:"Empty where this key server does not know it."`
	By          []GateBy `json:"by" doc:"The role that grants it, and the entry of the list that lets."`
}
