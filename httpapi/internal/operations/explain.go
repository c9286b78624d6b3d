package operations

import (
	"context"
	"fmt"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// defaultWhoCanPage is the number of entries of a page of who-can if the request has no limit.
const defaultWhoCanPage = 100

func getExplanation(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.ExplainRequest) (schema.Explanation, error) {
	q := keyserver.Question{Operation: operationOf(in.Operation), Principal: (*keyserver.ID)(in.PrincipalID)}
	if in.HiddenLink != nil {
		q.Link = keyserver.HiddenLink(*in.HiddenLink)
	}
	if in.At != nil {
		q.At = *in.At
	}
	for i := range in.With {
		s, err := suppositionOf(in.With[i])
		if err != nil {
			return schema.Explanation{}, fault.New(fault.BadRequest, "with[%d]: %s", i, err)
		}
		q.With = append(q.With, s)
	}
	x, err := ops.Explain(ctx, by, q)
	if err != nil {
		return schema.Explanation{}, err
	}
	out := schema.Explanation{
		Allowed: x.Allowed, PrincipalID: schema.HexID(x.Principal), Uses: x.Uses, EvidenceAge: (x.Staleness + time.Millisecond - 1).Milliseconds(), Sequence: x.Sequence,
		Detail: "the authorizer would allow this", Steps: Convert(x.Steps, gateStepOf), Change: Convert(x.Change, suppositionShown), Roles: Convert(x.Roles, gateByOf),
	}
	if f := fault.As(x.Refusal); f != nil {
		out.Code, out.Reason, out.Detail = string(f.Code), string(f.Reason), f.Detail
	}
	return out, nil
}

func listCapable(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.WhoCanRequest) (schema.WhoCanPage, error) {
	crowd := keyserver.WhoCanQuery{Operation: operationOf(in.Operation), Limit: defaultWhoCanPage}
	if in.HiddenLink != nil {
		crowd.Link = keyserver.HiddenLink(*in.HiddenLink)
	}
	if in.Limit != nil {
		crowd.Limit = *in.Limit
	}
	if in.After != nil {
		crowd.After = keyserver.ID(*in.After)
	}
	page, err := ops.WhoCan(ctx, by, crowd)
	if err != nil {
		return schema.WhoCanPage{}, err
	}
	out := schema.WhoCanPage{
		Count: len(page.Principals), Who: Convert(page.Principals, capableOf), Elsewhere: Convert(page.Foreign, capableOf), Detail: "the last page",
	}
	if !page.Next.IsZero() {
		out.Next, out.Detail = (*schema.HexID)(&page.Next), "there may be more; request them with after set to next"
	}
	return out, nil
}

func operationOf(name schema.OperationKey) keyserver.Operation {
	op, _ := keyserver.OperationNamed(string(name)) // the decoder has checked the name
	return op
}

func gateStepOf(s keyserver.ExplainedStep) schema.GateStep {
	return schema.GateStep{Step: string(s.Step), Outcome: string(s.Outcome), Detail: s.Detail, By: optional(s.By, gateByOf)}
}

func gateByOf(c keyserver.Cause) schema.GateBy {
	out := schema.GateBy{Kind: string(c.Kind), ID: schema.HexID(c.ID), Name: c.Name}
	if c.Kind == keyserver.ChangePrincipal {
		out.SystemID = (*schema.SystemID)(&c.System)
	}
	out.StartTime, out.EndTime = windowBound(c.Start), windowBound(c.End)
	return out
}

// windowBound returns a bound of a time window, or nil if it is open.
func windowBound(s keyserver.Stamp) *schema.Stamp {
	if s.IsUnset() {
		return nil
	}
	return (*schema.Stamp)(&s)
}

func capableOf(c keyserver.Capable) schema.Capable {
	return schema.Capable{PrincipalID: schema.HexID(c.Principal.ID), SystemID: schema.SystemID(c.Principal.System), Name: c.Name, By: Convert(c.By, gateByOf)}
}

// suppositionOf decodes a supposition, a change whose effect on a decision is asked. It must have exactly the fields of
// its change.
func suppositionOf(in schema.Supposition) (keyserver.Supposition, error) {
	out := keyserver.Supposition{Kind: keyserver.SuppositionKind(in.Change), MaxUsage: keyserver.NoUsageLimit}
	fields := out.Kind.Fields()
	for _, f := range []struct {
		name  keyserver.SuppositionField
		sent  bool
		takes func()
	}{
		{keyserver.SupposesPrincipal, in.PrincipalID != nil, func() { out.Principal = keyserver.ID(*in.PrincipalID) }},
		{keyserver.SupposesRole, in.RoleID != nil, func() { out.Role = keyserver.ID(*in.RoleID) }},
		{keyserver.SupposesGroup, in.GroupID != nil, func() { out.Group = keyserver.ID(*in.GroupID) }},
		{keyserver.SupposesName, in.Name != nil, func() { out.Name = *in.Name }},
		{keyserver.SupposesSystem, in.SystemID != nil, func() { out.System = keyserver.SystemID(*in.SystemID) }},
		{keyserver.SupposesKey, in.HiddenLink != nil, func() { out.Link = keyserver.HiddenLink(*in.HiddenLink) }},
		{keyserver.SupposesRights, in.Rights != nil, func() {
			for _, name := range in.Rights {
				right, _ := values.ParseRight(name)
				out.Rights |= right
			}
		}},
		{keyserver.SupposesUses, in.MaxUsage != nil, func() { out.MaxUsage = *in.MaxUsage }},
		{keyserver.SupposesStart, in.StartTime != nil, func() { out.Start = keyserver.Stamp(*in.StartTime) }},
		{keyserver.SupposesEnd, in.EndTime != nil, func() { out.End = keyserver.Stamp(*in.EndTime) }},
	} {
		required, takes := fields[f.name]
		switch {
		case f.sent && !takes:
			return out, fmt.Errorf("%s does not allow %s; leave it out", in.Change, f.name)
		case !f.sent && takes && required:
			return out, fmt.Errorf("%s requires %s; send it", in.Change, f.name)
		case f.sent:
			f.takes()
		}
	}
	return out, nil
}

func suppositionShown(s keyserver.Supposition) schema.Supposition {
	out := schema.Supposition{Change: string(s.Kind)}
	for name := range s.Kind.Fields() {
		switch name {
		case keyserver.SupposesPrincipal:
			out.PrincipalID = (*schema.HexID)(&s.Principal)
		case keyserver.SupposesRole:
			out.RoleID = (*schema.HexID)(&s.Role)
		case keyserver.SupposesGroup:
			out.GroupID = (*schema.HexID)(&s.Group)
		case keyserver.SupposesSystem:
			out.SystemID = (*schema.SystemID)(&s.System)
		case keyserver.SupposesKey:
			if s.Link != "" {
				out.HiddenLink = (*schema.HiddenLink)(&s.Link)
			}
		case keyserver.SupposesRights:
			out.Rights = s.Rights.Names()
		case keyserver.SupposesName:
			out.Name = &s.Name
		case keyserver.SupposesUses:
			if s.MaxUsage != keyserver.NoUsageLimit {
				out.MaxUsage = &s.MaxUsage
			}
		case keyserver.SupposesStart:
			out.StartTime = windowBound(s.Start)
		case keyserver.SupposesEnd:
			out.EndTime = windowBound(s.End)
		default: // the fields of all changes are handled above
		}
	}
	return out
}
