package schema

import (
	"errors"
	"slices"
)

// OperationKey is an operation of the catalogue, by its key in the audit log.
type OperationKey string

var errOperationKey = errors.New("must be an operation of GET /api/operations, for instance hmacData")

// MarshalText encodes the key.
func (k OperationKey) MarshalText() ([]byte, error) { return []byte(k), nil }

// UnmarshalText accepts the key of an existing operation.
func (k *OperationKey) UnmarshalText(text []byte) error {
	if _, found := slices.BinarySearch(operationNames, string(text)); !found {
		return errOperationKey
	}
	*k = OperationKey(text)
	return nil
}

// ExplainRequest asks for a decision of the authorizer and its reasons.
type ExplainRequest struct {
	Operation   OperationKey  `json:"operation" doc:"Operation to decide on."`
	HiddenLink  *HiddenLink   `json:"hiddenLink,omitzero" names:"-" doc:"Key that the operation concerns. If omitted, no ACL is checked."`
	PrincipalID *HexID        `json:"principalId,omitzero" names:"-" example:"-" doc:"Principal that would send the request, with a new session. Default: the caller, in this session."`
	Address     *IPAddress    `json:"address,omitzero" example:"-" doc:"Address that the request would come from. It has no effect, because no check uses it."`
	At          *int64        `json:"at,omitzero" limit:"1..9007199254740992" example:"-" doc:"Number of a change from GET /api/changes that the decision must include."`
	With        []Supposition `json:"with,omitzero" items:"1..16" example:"-" doc:"Changes to suppose. Nothing is changed."`
}

// Supposition is a hypothetical change, or a change that would reverse a decision.
type Supposition struct {
	Change      string      `json:"change" enum:"SupposedChange" doc:"Kind of change. Each field names the kinds that use it."`
	PrincipalID *HexID      `json:"principalId,omitzero" names:"-" doc:"Principal that changes. For all kinds except enableKey and approve."`
	RoleID      *HexID      `json:"roleId,omitzero" names:"-" doc:"Role. For giveRole and takeRole."`
	GroupID     *HexID      `json:"groupId,omitzero" names:"-" doc:"Group. For addMember and removeMember."`
	Name        *string     `json:"name,omitzero" example:"-" doc:"Name of the role or group, for people; it has no effect. For giveRole, takeRole, addMember and removeMember."`
	SystemID    *SystemID   `json:"systemId,omitzero" names:"-" doc:"For setEntry and removeEntry: key server that owns the principal; default this one. For expose and restrict: the peer."`
	HiddenLink  *HiddenLink `json:"hiddenLink,omitzero" names:"-" doc:"Key; default the key of the question. For setEntry, removeEntry and enableKey. For a lineage, the authorizer may check another of its keys."`
	Rights      []string    `json:"rights,omitzero" items:"1..5" enum:"RightName" doc:"For setEntry: rights of the entry. It replaces the existing entry."`
	MaxUsage    *int64      `json:"maxUsage,omitzero" limit:"-1..9007199254740992" doc:"For setEntry: as in POST /api/keys/acl/grant."`
	StartTime   *Stamp      `json:"startTime,omitzero" doc:"For setEntry: as in POST /api/keys/acl/grant."`
	EndTime     *Stamp      `json:"endTime,omitzero" doc:"For setEntry: as in POST /api/keys/acl/grant."`
}

// Explanation is a decision of the authorizer with its reasons.
type Explanation struct {
	Allowed     bool          `json:"allowed" doc:"True if the authorizer would allow the operation. Checks that the operation itself makes later are not included."`
	Code        string        `json:"code" doc:"Code with which the operation would be refused; empty if it is allowed."`
	Reason      string        `json:"reason" doc:"Reason that the audit row of the refusal would have; empty if the operation is allowed."`
	Detail      string        `json:"detail" doc:"Text for people; the wording may change."`
	PrincipalID HexID         `json:"principalId" doc:"Principal that the decision is for."`
	Steps       []GateStep    `json:"steps" doc:"Checks of the authorizer in their order, up to the first refusal."`
	Uses        *int64        `json:"uses" doc:"Number of uses that the ACL leaves; null if the ACL has no limit or the caller lacks Explain Access."`
	EvidenceAge int64         `json:"evidenceAge" doc:"Age of the evidence in milliseconds, rounded up: time since the process last knew all changes of the database."`
	Sequence    int64         `json:"sequence" doc:"Number of the last change at the time of the decision; 0 if the caller lacks Explain Access."`
	Change      []Supposition `json:"change" doc:"Smallest set of changes found that would reverse the decision, in the format of with. Empty if there is none or the caller lacks Explain Access."`
	Roles       []GateBy      `json:"roles" doc:"If change grants a role: all sufficient roles, at most 16. The first one has the fewest operations and is the role in change. Otherwise empty."`
}

// GateStep is one check of the authorizer.
type GateStep struct {
	Step    string  `json:"step" enum:"GateCheck" doc:"Check of the authorizer."`
	Outcome string  `json:"outcome" enum:"GateOutcome" doc:"notAsked: another key server decides."`
	By      *GateBy `json:"by" doc:"Object that determined the outcome; null if there is none or the caller lacks Explain Access."`
	Detail  string  `json:"detail" doc:"Text for people; the wording may change."`
}

// GateBy names the object that decided a step.
type GateBy struct {
	Kind      string    `json:"kind" enum:"GateByKind" doc:"Kind as in the change feed. principal: the principal of the ACL entry."`
	ID        HexID     `json:"id"`
	SystemID  *SystemID `json:"systemId" doc:"System id of the key server that owns the principal; null for a role."`
	Name      string    `json:"name" doc:"Name; empty if this key server does not know it."`
	StartTime *Stamp    `json:"startTime" doc:"Start of the time window of an ACL entry that gives rights; null if there is none, and for other objects."`
	EndTime   *Stamp    `json:"endTime" doc:"End of the time window of an ACL entry that gives rights; null if there is none, and for other objects."`
}

// WhoCanRequest asks which principals may perform an operation.
type WhoCanRequest struct {
	Operation  OperationKey `json:"operation" doc:"Operation to decide on."`
	HiddenLink *HiddenLink  `json:"hiddenLink,omitzero" names:"-" doc:"Key that the operation concerns. If omitted: list all principals whose roles grant the operation."`
	Limit      *int         `json:"limit,omitzero" limit:"1..1000" doc:"Maximum number of principals in a page; default 100."`
	After      *HexID       `json:"after,omitzero" names:"-" example:"-" doc:"Value of next from the previous page."`
}

// WhoCanPage is a page of principals that may perform the operation, sorted by id.
type WhoCanPage struct {
	Count     int       `json:"count" doc:"Number of objects in this page. A page may be short without being the last."`
	Who       []Capable `json:"who" doc:"Principals of this key server that the authorizer would allow, with a new session."`
	Elsewhere []Capable `json:"elsewhere" doc:"Principals of peers that the ACL of the key allows. Their own key servers decide if a role grants them the operation. On the first page only."`
	Next      *HexID    `json:"next" doc:"Value of after for the next page; null on the last page."`
	Detail    string    `json:"detail" doc:"Text for people; the wording may change."`
}

// Capable is a principal that may perform the operation.
type Capable struct {
	PrincipalID HexID    `json:"principalId"`
	SystemID    SystemID `json:"systemId" doc:"System id of the key server that owns the principal."`
	Name        string   `json:"name" doc:"Name; empty if this key server does not know it."`
	By          []GateBy `json:"by" doc:"Role that grants the operation, and ACL entry that allows it."`
}
