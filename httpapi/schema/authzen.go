package schema

import (
	"errors"
)

// The following names are those of the OpenID AuthZEN Authorization API
// 1.0, sections 5 to 7.

// AccessSubject is the principal of a question.
type AccessSubject struct {
	Type       string `json:"type" enum:"principal"`
	ID         HexID  `json:"id" names:"-" doc:"A principal of this key server."`
	Properties JSON   `json:"properties,omitzero" doc:"Taken, and changes nothing: what the gate goes by the key server knows itself."`
}

// AccessAction is the operation of a question.
type AccessAction struct {
	Name       OperationName `json:"name" doc:"An operation of the catalogue."`
	Properties JSON          `json:"properties,omitzero" doc:"Taken, and changes nothing."`
}

// AccessResource is the object of a question.
type AccessResource struct {
	Type       string     `json:"type" enum:"key,keyserver" doc:"keyserver where the operation is about no key, or no list is to be asked."`
	ID         ResourceID `json:"id" names:"-" doc:"Of a key, its hidden link. Of the key server, self."`
	Properties JSON       `json:"properties,omitzero" doc:"Taken, and changes nothing."`
}

// AccessRequest asks whether a principal may perform an operation.
type AccessRequest struct {
	Subject  AccessSubject  `json:"subject" doc:"Who."`
	Action   AccessAction   `json:"action" doc:"What."`
	Resource AccessResource `json:"resource" doc:"To what."`
	Context  JSON           `json:"context,omitzero" doc:"Taken, and changes nothing."`
}

// AccessItem is one of several questions. The request has defaults for the
// fields that it omits.
type AccessItem struct {
	Subject  *AccessSubject  `json:"subject,omitzero" doc:"Who."`
	Action   *AccessAction   `json:"action,omitzero" doc:"What."`
	Resource *AccessResource `json:"resource,omitzero" doc:"To what."`
	Context  JSON            `json:"context,omitzero" doc:"Taken, and changes nothing."`

	refused error
}

// Apart is an element of a list in a request. If it is refused, the others
// are still processed.
type Apart interface {
	// Refuse stores the reason why the element cannot be decoded.
	Refuse(why error)
}

// Refuse implements Apart.
func (i *AccessItem) Refuse(why error) { i.refused = why }

// Refused returns the reason why the question cannot be decoded, or nil.
func (i *AccessItem) Refused() error { return i.refused }

// AccessOptions say how several questions are processed.
type AccessOptions struct {
	Semantic string `json:"evaluations_semantic,omitzero" enum:"execute_all,deny_on_first_deny,permit_on_first_permit" doc:"With which answer to stop; execute_all, the default, with none."`
}

// AccessBatchRequest asks several questions.
type AccessBatchRequest struct {
	Subject     *AccessSubject  `json:"subject,omitzero" doc:"Who, where a question does not say."`
	Action      *AccessAction   `json:"action,omitzero" doc:"What, where a question does not say."`
	Resource    *AccessResource `json:"resource,omitzero" doc:"To what, where a question does not say."`
	Context     JSON            `json:"context,omitzero" doc:"Taken, and changes nothing."`
	Evaluations []AccessItem    `json:"evaluations,omitzero" items:"0..64" doc:"The questions. Where there are none, the request is one itself."`
	Options     *AccessOptions  `json:"options,omitzero" doc:"How they are answered."`
}

// AccessDecision is the decision on one question.
type AccessDecision struct {
	Decision bool          `json:"decision" doc:"The gate would let the operation through. What the operation itself refuses, once let, is not asked."`
	Context  AccessContext `json:"context" doc:"Why."`
}

// AccessContext is the reason of a decision.
type AccessContext struct {
	Code   string       `json:"code" doc:"What the operation would be refused with, or why the question was; empty where it is let."`
	Reason string       `json:"reason" doc:"As the audit row of the refusal would have it; empty where it is let, or the question was refused."`
	Detail string       `json:"detail" doc:"For people; its wording may change."`
	Error  *AccessError `json:"error,omitzero" doc:"There where one question of several was refused itself."`
}

// AccessError is the refusal of a question.
type AccessError struct {
	Status  int    `json:"status" doc:"That it would have had alone."`
	Message string `json:"message" doc:"For people; its wording may change."`
}

// AccessDecisions are the decisions on several questions, or on one.
type AccessDecisions struct {
	Decision    *bool            `json:"decision,omitzero" doc:"Of a request without evaluations."`
	Context     *AccessContext   `json:"context,omitzero" doc:"Of a request without evaluations."`
	Evaluations []AccessDecision `json:"evaluations,omitzero" doc:"In the order of the questions, up to the one that the semantic stops with."`
}

// Within returns the item with the defaults of the request.
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
