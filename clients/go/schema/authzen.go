package schema

import (
	"errors"
)

// The following names are those of the OpenID AuthZEN Authorization API
// 1.0, sections 5 to 7.

// AccessSubject is the principal whose rights are checked.
type AccessSubject struct {
	Type       string `json:"type" const:"principal"`
	ID         HexID  `json:"id" names:"-" doc:"Id of a principal of this key server."`
	Properties JSON   `json:"properties,omitzero" doc:"Accepted and ignored: the key server knows the properties itself."`
}

// AccessAction is the operation that the principal may or may not perform.
type AccessAction struct {
	Name       OperationKey `json:"name" doc:"Operation from GET /api/operations."`
	Properties JSON         `json:"properties,omitzero" doc:"Accepted and ignored."`
}

// AccessResource is the object of the operation.
type AccessResource struct {
	Type       string     `json:"type" enum:"ResourceType" doc:"keyserver: the operation concerns no key, or the ACL is not to be checked."`
	ID         ResourceID `json:"id" names:"-" doc:"Hidden link of the key, or self for the key server."`
	Properties JSON       `json:"properties,omitzero" doc:"Accepted and ignored."`
}

// AccessRequest asks whether a principal may perform an operation.
type AccessRequest struct {
	Subject  AccessSubject  `json:"subject" doc:"Principal."`
	Action   AccessAction   `json:"action" doc:"Operation."`
	Resource AccessResource `json:"resource" doc:"Object of the operation."`
	Context  JSON           `json:"context,omitzero" doc:"Accepted and ignored."`
}

// AccessItem is one of several checks in a request. The request has defaults for the fields that the item omits.
type AccessItem struct {
	Subject  *AccessSubject  `json:"subject,omitzero" doc:"Principal."`
	Action   *AccessAction   `json:"action,omitzero" doc:"Operation."`
	Resource *AccessResource `json:"resource,omitzero" doc:"Object of the operation."`
	Context  JSON            `json:"context,omitzero" doc:"Accepted and ignored."`

	refused error
}

// SeparateElement is an element of a list whose elements are refused separately: if one element is refused, the other elements
// are still processed.
type SeparateElement interface {
	// Refuse stores the reason why the element cannot be decoded.
	Refuse(why error)
}

// Refuse implements SeparateElement.
func (i *AccessItem) Refuse(why error) { i.refused = why }

// Refused returns the reason why the question cannot be decoded, or nil.
func (i *AccessItem) Refused() error { return i.refused }

// AccessOptions say how several questions are processed.
type AccessOptions struct {
	Semantic string `json:"evaluations_semantic,omitzero" enum:"EvaluationsSemantic" doc:"Decision that ends the evaluation. execute_all (default): none."`
}

// AccessBatchRequest asks several questions.
type AccessBatchRequest struct {
	Subject     *AccessSubject  `json:"subject,omitzero" doc:"Principal of questions that name none."`
	Action      *AccessAction   `json:"action,omitzero" doc:"Operation of questions that name none."`
	Resource    *AccessResource `json:"resource,omitzero" doc:"Object of questions that name none."`
	Context     JSON            `json:"context,omitzero" doc:"Accepted and ignored."`
	Evaluations []AccessItem    `json:"evaluations,omitzero" items:"0..64" doc:"Questions. If there are none, the request itself is one question."`
	Options     *AccessOptions  `json:"options,omitzero" doc:"Options of the evaluation."`
}

// AccessDecision is the decision on one question.
type AccessDecision struct {
	Decision bool          `json:"decision" doc:"True if the authorizer would allow the operation. Checks that the operation itself makes later are not included."`
	Context  AccessContext `json:"context" doc:"Reason of the decision."`
}

// AccessContext is the reason of a decision.
type AccessContext struct {
	Code   string       `json:"code" doc:"Code with which the operation, or the question itself, would be refused; empty if it is allowed."`
	Reason string       `json:"reason" doc:"Reason that the audit row of the refusal would have; empty if the operation is allowed or the question is refused."`
	Detail string       `json:"detail" doc:"Text for people; the wording may change."`
	Error  *AccessError `json:"error,omitzero" doc:"Present if one of several questions is refused itself."`
}

// AccessError is the refusal of a question.
type AccessError struct {
	Status  int    `json:"status" doc:"Status that the question would have as a single request."`
	Message string `json:"message" doc:"Text for people; the wording may change."`
}

// AccessDecisions are the decisions on several questions, or on one.
type AccessDecisions struct {
	Decision    *bool            `json:"decision,omitzero" doc:"Present for a request without evaluations."`
	Context     *AccessContext   `json:"context,omitzero" doc:"Present for a request without evaluations."`
	Evaluations []AccessDecision `json:"evaluations,omitzero" doc:"Decisions in the order of the questions, up to the one that ended the evaluation."`
}

// Within returns the item, with the values of all in place of omitted fields.
func (i AccessItem) Within(all AccessItem) AccessItem {
	if i.Subject == nil {
		i.Subject = all.Subject
	}
	if i.Action == nil {
		i.Action = all.Action
	}
	if i.Resource == nil {
		i.Resource = all.Resource
	}
	return i
}

// ResourceID is a hidden link, or the name of this key server.
type ResourceID string

// ThisKeyServer is the id of a resource of type keyserver.
const ThisKeyServer ResourceID = "self"

var errResourceID = errors.New("must be the canonical base64 of a hidden link of 1 to 64 bytes, or self")

// MarshalText encodes the id.
func (r ResourceID) MarshalText() ([]byte, error) { return []byte(r), nil }

// UnmarshalText accepts a hidden link or ThisKeyServer.
func (r *ResourceID) UnmarshalText(text []byte) error {
	*r = ResourceID(text)
	if *r != ThisKeyServer && new(HiddenLink).UnmarshalText(text) != nil {
		return errResourceID
	}
	return nil
}
