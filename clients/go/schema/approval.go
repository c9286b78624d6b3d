package schema

import "time"

// ApprovalRule says which approvals an operation needs.
type ApprovalRule struct {
	Operation string `json:"operation" limit:"1..64" doc:"Key of an operation from GET /api/operations, giveDuties or destroyKey. giveDuties guards requests that grant an operation of administration, trust or audit. destroyKey guards requests that begin the destruction of a key."`
	Approvers int    `json:"approvers" limit:"1..5" doc:"Number of other principals that must approve."`
	Duty      string `json:"duty" enum:"ApprovalDuty" doc:"Duty that each approver must have; any: one of the three."`
}

// ApprovalPolicyRequest is a complete policy.
type ApprovalPolicyRequest struct {
	Rules []ApprovalRule `json:"rules" items:"0..64" doc:"All rules. An operation has at most one rule."`
}

// ApprovalPolicy is the current policy.
type ApprovalPolicy struct {
	Rules  []ApprovalRule `json:"rules" doc:"All rules."`
	Detail string         `json:"detail" doc:"Text for people; the wording may change."`
}

// ApprovalPolicySaved is the result of setting the policy.
type ApprovalPolicySaved struct {
	Saved bool           `json:"saved" doc:"True if the second read shows exactly the requested rules."`
	Rules []ApprovalRule `json:"rules" doc:"State from the second read."`
	Verdict
}

// MissingEvidence returns "" if the second read shows the policy.
func (p ApprovalPolicySaved) MissingEvidence() string { return notShown(p.Saved, "the policy") }

// ApprovalRequest requests the approval of other principals for a request.
type ApprovalRequest struct {
	Method string      `json:"method" enum:"RequestMethod" doc:"Method of the request to execute."`
	Path   RequestPath `json:"path" doc:"Path of the request, with its query if it has one."`
	Body   JSON        `json:"body,omitzero" doc:"Body of the request, at most 64 KiB; omitted if it has none. A body with a password or key material is refused."`
	Reason string      `json:"reason" limit:"1..256" doc:"Reason, for the approvers."`
}

// ApprovalPerson is the principal that requested, approved, rejected or executed a request.
type ApprovalPerson struct {
	ID          HexID     `json:"id" doc:"16 hexadecimal digits."`
	PrincipalID DecimalID `json:"principalId" doc:"The same identifier in decimal."`
	SystemID    SystemID  `json:"systemId"`
}

// ApprovalVote is the approval of one principal.
type ApprovalVote struct {
	ApprovalPerson
	Name string    `json:"name" doc:"Name of the approver at that time."`
	At   time.Time `json:"at" doc:"Time of the approval."`
}

// ApprovalTally has the number of approvals that count for one rule.
type ApprovalTally struct {
	ApprovalRule
	Approved int `json:"approved" doc:"Number of approvals that count now: their approvers are enabled and have the duty."`
}

// ApprovalSubject describes an object that the request names.
type ApprovalSubject struct {
	Kind    string  `json:"kind" enum:"ApprovalSubjectKind" doc:"Kind of the object. asker: the credentials of the requester. principal: the principal and everything that can act as it. holders: a role with its holders. transport: the transport principal of a certificate. owner: the owner mark of an object."`
	ID      string  `json:"id" doc:"Identifier of the object: 16 hexadecimal digits, a hidden link, a number, a digest or a subject. If the request also names the key server, its system id and a slash come first. For an owner mark: the kind and the id of the object."`
	Name    *string `json:"name" doc:"Name of the object. Null if the object does not exist; the request then applies to the object that has this identifier later. Also null if the caller is the requester and may not read approvals."`
	Type    string  `json:"type,omitzero" enum:"PrincipalType" doc:"Type of a principal. A name is unique per type."`
	People  int     `json:"people,omitzero" doc:"Number of members of the group, or of holders of the role."`
	Changed *bool   `json:"changed,omitzero" doc:"True if the object changed after approval was requested. Then the request can no longer be approved or executed. Absent if the caller is the requester and may not read approvals."`
}

// Approval is a request for approval in its current state.
type Approval struct {
	ApprovalID HexID             `json:"approvalId" doc:"16 hexadecimal digits. The audit rows of the executed request contain it."`
	State      string            `json:"state" enum:"ApprovalStatus" doc:"approved: the requester can execute the request. rejected, executed, withdrawn and expired are final."`
	Digest     SHA256            `json:"digest" doc:"SHA-256 of the RFC 8785 form of an object with method, path and body; body is null if the request has none."`
	Method     string            `json:"method" doc:"Method of the request to execute."`
	Path       string            `json:"path" doc:"Path and query of the request."`
	Body       JSON              `json:"body,omitzero" doc:"Body that will be sent, byte for byte; absent if the request has none."`
	Reason     string            `json:"reason" doc:"Reason that the requester gave."`
	Asker      ApprovalPerson    `json:"asker" doc:"Principal that requested approval. Only this principal can execute the request."`
	AskerName  string            `json:"askerName" doc:"Name of the requester at that time."`
	Operations []string          `json:"operations" doc:"Keys of the operations that the request needs, and destroyKey if it begins the destruction of a key."`
	Required   int               `json:"required" doc:"Number of required approvals: the maximum over all rules."`
	Rules      []ApprovalTally   `json:"rules" doc:"Rules of the current policy that guard the request. All must be met."`
	ApprovedBy []ApprovalVote    `json:"approvedBy" doc:"Approvals in their order, including those that do not count now."`
	Subjects   []ApprovalSubject `json:"subjects,omitzero" doc:"Objects that the request names, and the requester. Present when one approval is requested or read, if it can still be executed."`
	CreatedAt  time.Time         `json:"createdAt" doc:"Time of the request for approval."`
	ExpiresAt  time.Time         `json:"expiresAt" doc:"Until this time the request can be approved, rejected and executed."`
	DecidedAt  *time.Time        `json:"decidedAt" doc:"Time of the rejection, execution or withdrawal; null if none."`
	DecidedBy  *ApprovalPerson   `json:"decidedBy" doc:"Principal that rejected, executed or withdrew the request; null if none."`
	Detail     string            `json:"detail" doc:"Text for people; the wording may change."`
}

// ApprovalQuery selects approvals.
type ApprovalQuery struct {
	Asker *HexID `query:"asker" names:"principal" doc:"Return only approvals that this principal requested; 16 hexadecimal digits. Approvals of the caller need no role."`
	Open  *bool  `query:"open" doc:"true: return only approvals that can still be approved, rejected or executed."`
	Limit *int   `query:"limit" limit:"1..1000" doc:"Maximum number of approvals in a page; default 100."`
	After *HexID `query:"after" names:"-" doc:"Value of next from the previous page."`
}

// ApprovalListing is a page of approvals, sorted by id.
type ApprovalListing struct {
	Count     int        `json:"count" doc:"Number of objects in this page."`
	Approvals []Approval `json:"approvals" doc:"Approvals in their current state."`
	Next      *HexID     `json:"next" doc:"Value of after for the next page; null on the last page."`
	Detail    string     `json:"detail" doc:"Text for people; the wording may change."`
}

// ApprovalDecision approves or rejects exactly one request.
type ApprovalDecision struct {
	ID     HexID  `path:"id" json:"-" doc:"16 hexadecimal digits."`
	Digest SHA256 `json:"digest" doc:"Digest of the approval, as the approver or rejecter has read it."`
}
