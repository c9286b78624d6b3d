package schema

import "time"

// ApprovalRule says which approvals an operation needs.
type ApprovalRule struct {
	Operation string `json:"operation" limit:"1..64" doc:"The key of an operation, as GET /api/operations lists it, or giveDuties, which guards requests that give an operation of administration, trust or audit, or destroyKey, which guards requests that begin the destruction of a key."`
	Approvers int    `json:"approvers" limit:"1..5" doc:"How many others have to approve."`
	Duty      string `json:"duty" enum:"administration,trust,audit,any" doc:"The duty that each of them has; any is any of the three."`
}

// ApprovalPolicyRequest is a complete policy.
type ApprovalPolicyRequest struct {
	Rules []ApprovalRule `json:"rules" items:"0..64" doc:"All that takes an approval; an operation has one rule at most."`
}

// ApprovalPolicy is the current policy.
type ApprovalPolicy struct {
	Rules  []ApprovalRule `json:"rules" doc:"All that takes an approval."`
	Detail string         `json:"detail" doc:"For people; its wording may change."`
}

// ApprovalPolicySaved is the verdict on setting the policy.
type ApprovalPolicySaved struct {
	Saved bool           `json:"saved" doc:"Exactly what was sent reads back."`
	Rules []ApprovalRule `json:"rules" doc:"As read back."`
	Verdict
}

// Unproven returns "" if the policy reads back.
func (p ApprovalPolicySaved) Unproven() string { return unshown(p.Saved, "the policy") }

// ApprovalRequest asks others to approve a request.
type ApprovalRequest struct {
	Method string      `json:"method" enum:"GET,POST,PUT,DELETE" doc:"Of the request that is to be carried out."`
	Path   RequestPath `json:"path" doc:"Its path, and its query where it has one."`
	Body   JSON        `json:"body,omitzero" doc:"Its body, at most 64 KiB; left out where it has none. None with a password or key material is taken."`
	Reason string      `json:"reason" limit:"1..256" doc:"Why, for those who are to approve."`
}

// ApprovalPerson is the principal that requested, approved, rejected or executed.
type ApprovalPerson struct {
	ID          HexID     `json:"id" doc:"16 hexadecimal digits."`
	PrincipalID DecimalID `json:"principalId" doc:"The same identifier in decimal."`
	SystemID    SystemID  `json:"systemId"`
}

// ApprovalVote is the approval of one principal.
type ApprovalVote struct {
	ApprovalPerson
	Name string    `json:"name" doc:"What that one was called then."`
	At   time.Time `json:"at" doc:"When he approved."`
}

// ApprovalTally has the number of approvals that count for one rule.
type ApprovalTally struct {
	ApprovalRule
	Approved int `json:"approved" doc:"How many of those who approved count at this moment: they are enabled and have the duty."`
}

// ApprovalSubject describes an object that the request names.
type ApprovalSubject struct {
	Kind    string  `json:"kind" enum:"asker,principal,group,role,holders,key,peer,trustedCa,certificate,transport,template,directory,principalTrust,owner" doc:"What it is: asker is what the asker logs in by, principal whoever can become it as well, holders a role with whoever holds it, transport the transport principal of a certificate, owner the owner mark of an object, its id being the kind and the id of that."`
	ID      string  `json:"id" doc:"How it is named: 16 hexadecimal digits, behind the key server's number and a slash where the request says that; a hidden link, a number, a digest or a subject."`
	Name    *string `json:"name" doc:"What it is called, or null where the key server has nothing of that name; the request then is about whatever will have it. Null, too, for an asker who may not read approvals."`
	Type    string  `json:"type,omitzero" enum:"password,certificate,ldap,xauth,group" doc:"Of a principal: a name is taken once per type."`
	People  int     `json:"people,omitzero" doc:"Members of a group, or holders of a role, that it stands for."`
	Changed *bool   `json:"changed,omitzero" doc:"Absent for an asker who may not read approvals. It is not what it was when the request was asked for, so that nobody can approve or execute that any more."`
}

// Approval is a request for approval in its current state.
type Approval struct {
	ApprovalID HexID             `json:"approvalId" doc:"16 hexadecimal digits; the audit rows of what is carried out have it."`
	State      string            `json:"state" enum:"pending,approved,expired,rejected,executed,withdrawn" doc:"approved: its asker can execute it. Rejected, executed, withdrawn and expired ones stay so."`
	Digest     SHA256            `json:"digest" doc:"SHA-256 of the RFC 8785 form of an object of method, path and body, null without one."`
	Method     string            `json:"method" doc:"Of the request that is to be carried out."`
	Path       string            `json:"path" doc:"Its path and query."`
	Body       JSON              `json:"body,omitzero" doc:"What will be sent, byte for byte; absent where the request has none."`
	Reason     string            `json:"reason" doc:"As the asker says."`
	Asker      ApprovalPerson    `json:"asker" doc:"Who asked, and alone executes it."`
	AskerName  string            `json:"askerName" doc:"What the asker was called then."`
	Operations []string          `json:"operations" doc:"Keys of the operations that the request needs, and destroyKey if it begins the destruction of a key."`
	Required   int               `json:"required" doc:"How many have to approve, by the rule that asks for most."`
	Rules      []ApprovalTally   `json:"rules" doc:"Those that guard it by the policy of this moment; each has to be met."`
	ApprovedBy []ApprovalVote    `json:"approvedBy" doc:"Who approved, in that order, whether or not it counts now."`
	Subjects   []ApprovalSubject `json:"subjects,omitzero" doc:"What the request names, and its asker; where one approval is asked for or read that can still be executed."`
	CreatedAt  time.Time         `json:"createdAt" doc:"When it was asked for."`
	ExpiresAt  time.Time         `json:"expiresAt" doc:"Until then it can be approved, rejected and executed."`
	DecidedAt  *time.Time        `json:"decidedAt" doc:"When it was rejected, executed or withdrawn, or null."`
	DecidedBy  *ApprovalPerson   `json:"decidedBy" doc:"By whom, or null."`
	Detail     string            `json:"detail" doc:"For people; its wording may change."`
}

// ApprovalQuery selects approvals.
type ApprovalQuery struct {
	Asker *HexID `query:"asker" names:"principal" doc:"Only those that this principal asked for; 16 hexadecimal digits. One's own need no role."`
	Open  *bool  `query:"open" doc:"true: only those that can still be approved, rejected or executed."`
	Limit *int   `query:"limit" limit:"1..1000" doc:"Approvals in a page, 100 when left out."`
	After *HexID `query:"after" names:"-" doc:"The next of an earlier page."`
}

// ApprovalListing is a page of approvals, sorted by id.
type ApprovalListing struct {
	Count     int        `json:"count" doc:"Of this page."`
	Approvals []Approval `json:"approvals" doc:"As they stand at this moment."`
	Next      *HexID     `json:"next" doc:"What the next page is after, or null where this is the last."`
	Detail    string     `json:"detail" doc:"For people; its wording may change."`
}

// ApprovalDecision approves or rejects exactly one request.
type ApprovalDecision struct {
	ID     HexID  `path:"id" json:"-" doc:"16 hexadecimal digits."`
	Digest SHA256 `json:"digest" doc:"That of the approval, as whoever decides has read it."`
}
