package operations

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// The types of resources of this key server.
const (
	resourceKey       = "key"
	resourceKeyServer = "keyserver"
)

func getDecision(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.AccessRequest) (schema.AccessDecision, error) {
	return decide(ctx, ops, by, schema.AccessItem{Subject: &in.Subject, Action: &in.Action, Resource: &in.Resource})
}

func getDecisions(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.AccessBatchRequest) (out schema.AccessDecisions, err error) {
	whole := schema.AccessItem{Subject: in.Subject, Action: in.Action, Resource: in.Resource}
	if len(in.Evaluations) == 0 {
		one, err := decide(ctx, ops, by, whole)
		if err != nil {
			return out, err
		}
		return schema.AccessDecisions{Decision: &one.Decision, Context: &one.Context}, nil
	}
	semantic := ""
	if in.Options != nil {
		semantic = in.Options.Semantic
	}
	for _, item := range in.Evaluations {
		one, err := decide(ctx, ops, by, item.Within(whole))
		if f := fault.As(err); f != nil && ofTheQuestion(f) {
			one.Context = schema.AccessContext{Code: string(f.Code), Detail: f.Detail, Error: &schema.AccessError{Status: routes.Status(f.Code), Message: f.Detail}}
		} else if err != nil {
			return out, err
		}
		out.Evaluations = append(out.Evaluations, one)
		if semantic == "deny_on_first_deny" && !one.Decision || semantic == "permit_on_first_permit" && one.Decision {
			break
		}
	}
	return out, nil
}

// ofTheQuestion reports whether the fault concerns only one question of the request. Then the other questions can still
// be answered.
func ofTheQuestion(f *fault.Error) bool {
	return f.Code == fault.BadRequest || f.Code == fault.InvalidArgument || f.Code == fault.AccessDenied
}

// decide asks the authorizer for a decision. If the subject or the resource does not exist, the decision is false.
func decide(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.AccessItem) (schema.AccessDecision, error) {
	q, err := questionOf(in)
	if err != nil {
		return schema.AccessDecision{}, err
	}
	q.OmitChanges = true
	x, err := ops.Explain(ctx, by, q)
	if f := fault.As(err); f != nil && f.Code == fault.NotFound {
		return denied(f), nil
	}
	if err != nil {
		return schema.AccessDecision{}, err
	}
	if f := fault.As(x.Refusal); f != nil {
		return denied(f), nil
	}
	return schema.AccessDecision{Decision: x.Allowed, Context: schema.AccessContext{Detail: "the authorizer would allow this"}}, nil
}

func denied(f *fault.Error) schema.AccessDecision {
	return schema.AccessDecision{Context: schema.AccessContext{Code: string(f.Code), Reason: string(f.Reason), Detail: f.Detail}}
}

// questionOf decodes the parts of a question whose meaning AuthZEN leaves to the key server.
func questionOf(in schema.AccessItem) (q keyserver.Question, err error) {
	refuse := func(format string, args ...any) (keyserver.Question, error) {
		return keyserver.Question{}, fault.New(fault.BadRequest, format, args...)
	}
	switch {
	case in.Refused() != nil:
		return q, routes.Refused(in.Refused())
	case in.Subject == nil:
		return refuse("subject: is missing; send it in the element of evaluations or in the request")
	case in.Action == nil:
		return refuse("action: is missing; send it in the element of evaluations or in the request")
	case in.Resource == nil:
		return refuse("resource: is missing; send it in the element of evaluations or in the request")
	}
	q = keyserver.Question{Operation: operationOf(in.Action.Name), Principal: (*keyserver.ID)(&in.Subject.ID)}
	switch self := in.Resource.ID == schema.ThisKeyServer; {
	case in.Resource.Type == resourceKeyServer && !self:
		return refuse("resource.id: must be %s for the type %s; ask other key servers for their own decisions", schema.ThisKeyServer, resourceKeyServer)
	case in.Resource.Type == resourceKeyServer:
		return q, nil
	case !q.Operation.AboutKey():
		return refuse("resource.type: %s does not concern a key; send the type %s with the id %s", q.Operation.Name, resourceKeyServer, schema.ThisKeyServer)
	default:
		var link schema.HiddenLink
		if err := link.UnmarshalText([]byte(in.Resource.ID)); err != nil {
			return refuse("resource.id: %s", err)
		}
		q.Link = keyserver.HiddenLink(link)
		return q, nil
	}
}
