package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// maxRemedies is the maximum number of changes in the list that reverses a refusal. It is larger than the number of
// checks that a change can affect.
const maxRemedies = 8

// Explain implements keyserver.Explanations. A question about the caller itself needs no right, because the caller
// could also try the request. The operation Explain Access is needed for questions about another principal, with
// supposed changes, or about a state that includes a given change (q.At).
func (e *Engine) Explain(ctx context.Context, by keyserver.Caller, q keyserver.Question) (out keyserver.Explanation, err error) {
	if q.Principal != nil && *q.Principal == by.Principal.ID && by.Actor.ID.IsZero() {
		q.Principal = nil
	}
	for i, s := range q.With { // a missing system id means this key server
		if _, takes := s.Kind.Fields()[keyserver.SupposesSystem]; takes && s.System == 0 {
			q.With[i].System = e.System
		}
	}
	own := q.Principal == nil && len(q.With) == 0 && q.At == 0
	r := gate.Request{By: by, Op: keyserver.OpExplainAccess, Own: own, Object: questionText(by, q)}
	err = e.Perform(ctx, r, func() error {
		head, err := e.Store.ChangeHead(ctx)
		if err != nil {
			return err
		}
		if q.At > head {
			return gate.Invalid("at: the last change of this key server is %d, so change %d does not exist yet", head, q.At)
		}
		asked, confirmed := e, e.Store.Confirmed()
		if q.At > 0 {
			asked, confirmed = e.withEmptyCaches(), e.Store.Now()
		}
		told := !own || e.WouldAllow(ctx, by, keyserver.OpExplainAccess)
		q.OmitChanges = q.OmitChanges || !told
		if !told {
			e.CountRefusal(by) // counts like a refusal: it needs no right, but writes an audit row
		}
		if out, err = asked.explainWithChanges(ctx, by, q); err != nil {
			return err
		}
		out.Sequence, out.Staleness = head, e.Store.Now().Sub(confirmed)
		if !told {
			redact(&out)
		}
		return nil
	})
	return out, err
}

// explainWithChanges returns the explanation of a decision. It includes the changes that would reverse the decision, unless
// q.OmitChanges is set.
func (e *Engine) explainWithChanges(ctx context.Context, by keyserver.Caller, q keyserver.Question) (out keyserver.Explanation, err error) {
	if q.Principal != nil {
		if by, err = e.callerOf(ctx, by, *q.Principal); err != nil {
			return out, err
		}
	}
	if out, err = e.explained(ctx, by, q); err != nil || q.OmitChanges {
		return out, err
	}
	if out.Change, err = e.reversingChanges(ctx, by, q, out); err != nil {
		return out, err
	}
	if slices.ContainsFunc(out.Change, func(s keyserver.Supposition) bool { return s.Kind == keyserver.SupposeRole }) {
		roles, err := e.rolesGranting(ctx, q.Operation)
		if err != nil {
			return out, err
		}
		for _, role := range roles[:min(len(roles), keyserver.MaxRolesNamed)] {
			out.Roles = append(out.Roles, keyserver.Cause{Kind: keyserver.ChangeRole, ID: role.ID, Name: role.Name})
		}
	}
	return out, nil
}

// redact removes the parts of an explanation that the caller could not learn by trying the request: the objects that
// caused the decision, the remaining uses, and the number of the last change on this key server.
func redact(out *keyserver.Explanation) {
	for i := range out.Steps {
		out.Steps[i].By = nil
	}
	out.Uses, out.Sequence = nil, 0
}

// questionText returns the description of the question in the audit row.
func questionText(by keyserver.Caller, q keyserver.Question) string {
	text := q.Operation.Key
	if q.Link != "" {
		text += " " + q.Link.Base64()
	}
	who := by.Principal.ID
	if q.Principal != nil {
		who = *q.Principal
	}
	return text + " for " + who.Hex()
}

// callerOf returns a caller with the rights of the principal, as if that principal had its own session. For a transport
// principal, the session has the certificate that BestOf returns, even if no certificate is in force.
func (e *Engine) callerOf(ctx context.Context, by keyserver.Caller, id keyserver.ID) (keyserver.Caller, error) {
	p, err := e.CachedPrincipal(ctx, id)
	if err != nil {
		return keyserver.Caller{}, gate.NotFound(err, fault.NotFound, "principalId: no principal has the id %s", id)
	}
	if p.Type == keyserver.GroupPrincipal {
		return keyserver.Caller{}, gate.Invalid("principalId: %s is a group, and a group sends no requests; name one of its members", id)
	}
	as := keyserver.Caller{Principal: p.Ref(), Name: p.Name, Type: p.Type, RequestID: by.RequestID}
	if p.Type != keyserver.CertificatePrincipal {
		return as, nil
	}
	as.Kind = keyserver.CertificateSession
	list, err := e.EnrolledFor(ctx, p.ID)
	if err != nil {
		return as, err
	}
	c, _, err := e.BestOf(ctx, list)
	as.Certificate = c.ID
	return as, err
}

// explained evaluates a question with a gate that only explains. It writes no audit row and counts no use.
func (e *Engine) explained(ctx context.Context, by keyserver.Caller, q keyserver.Question) (keyserver.Explanation, error) {
	asking, v := e.withView(q)
	if err := asking.explainOperation(ctx, by, q.Operation, q.Link); !errors.Is(err, gate.ErrExplainOnly) {
		return keyserver.Explanation{}, fmt.Errorf("explain %s: the question did not reach the authorizer: %w", q.Operation.Key, err)
	}
	refusal := v.Refusal
	if refusal != nil && fault.As(refusal) == nil {
		return keyserver.Explanation{}, refusal
	}
	if err := e.named(ctx, v.Steps); err != nil {
		return keyserver.Explanation{}, err
	}
	out := keyserver.Explanation{Allowed: refusal == nil, Refusal: refusal, Steps: v.Steps, Uses: v.Uses, Principal: by.Principal.ID, Asked: v.ACL.Link}
	if entry, has := v.ACL.Entry(by.Principal); has {
		out.Entry = &entry
	}
	return out, nil
}

// named sets the names of the principals in the causes of steps. Principals of peers get no name.
func (e *Engine) named(ctx context.Context, steps []keyserver.ExplainedStep) error {
	for _, step := range steps {
		if step.By == nil || step.By.Kind != keyserver.ChangePrincipal || step.By.System != e.System {
			continue
		}
		p, err := e.CachedPrincipal(ctx, step.By.ID)
		if err != nil && !errors.Is(err, sqlstore.ErrNotFound) {
			return err
		}
		step.By.Name = p.Name
	}
	return nil
}

// reversingChanges returns a shortest list of supposed changes that would reverse the decision, or nil if there is none. For a
// refusal, it adds the smallest change for each failed step until the request is allowed. For an allowed request, it
// returns one change that would cause a refusal.
func (e *Engine) reversingChanges(ctx context.Context, by keyserver.Caller, q keyserver.Question, is keyserver.Explanation) ([]keyserver.Supposition, error) {
	if is.Allowed {
		for _, s := range revokingChanges(by, q, is) {
			with := q
			with.With = append(slices.Clip(q.With), s)
			after, err := e.explained(ctx, by, with)
			if err != nil {
				return nil, err
			}
			if !after.Allowed {
				return []keyserver.Supposition{s}, nil
			}
		}
		return nil, nil
	}
	var changes []keyserver.Supposition
	for range maxRemedies {
		s, found, err := e.remedy(ctx, by, q, is)
		if err != nil || !found {
			return nil, err
		}
		changes = append(changes, s)
		q.With = append(slices.Clip(q.With), s)
		if is, err = e.explained(ctx, by, q); err != nil || is.Allowed {
			return changes, err
		}
	}
	return nil, nil
}

// revokingChanges returns supposed changes that could cause a refusal of an allowed request, the smallest change first.
func revokingChanges(by keyserver.Caller, q keyserver.Question, is keyserver.Explanation) (all []keyserver.Supposition) {
	for _, step := range slices.Backward(is.Steps) {
		switch {
		case step.By == nil:
		case step.Step == keyserver.StepACL:
			all = append(all, keyserver.Supposition{Kind: keyserver.SupposeNoEntry, Principal: step.By.ID, System: step.By.System, Link: checkedKey(q, is)})
		case step.Step == keyserver.StepRole:
			all = append(all, keyserver.Supposition{Kind: keyserver.SupposeNoRole, Principal: by.Principal.ID, Role: step.By.ID, Name: step.By.Name})
		}
	}
	return append(all, keyserver.Supposition{Kind: keyserver.SupposeDisabled, Principal: by.Principal.ID})
}

// remedy returns the smallest change with which the last, failed step of a refusal passes.
func (e *Engine) remedy(ctx context.Context, by keyserver.Caller, q keyserver.Question, is keyserver.Explanation) (s keyserver.Supposition, found bool, err error) {
	last := is.Steps[len(is.Steps)-1]
	s.Principal = by.Principal.ID
	switch last.Step {
	case keyserver.StepPrincipal:
		s.Kind = keyserver.SupposeEnabled
		return s, fault.CodeOf(is.Refusal) == fault.PrincipalOff, nil
	case keyserver.StepRole:
		roles, err := e.rolesGranting(ctx, q.Operation)
		if err != nil || len(roles) == 0 {
			return s, false, err
		}
		s.Kind, s.Role, s.Name = keyserver.SupposeRole, roles[0].ID, roles[0].Name
		return s, true, nil
	case keyserver.StepApproval:
		s.Kind = keyserver.SupposeApproval
		return s, true, nil
	case keyserver.StepExposure:
		to, _ := e.Foreign(q.Link)
		s.Kind, s.System = keyserver.SupposeExposed, to
		return s, by.Actor.ID.IsZero(), nil
	case keyserver.StepState:
		s = keyserver.Supposition{Kind: keyserver.SupposeState, Link: checkedKey(q, is)}
		return s, fault.CodeOf(is.Refusal) == fault.KeyDisabled && !slices.Contains(q.With, s), nil
	case keyserver.StepUses, keyserver.StepACL:
		if fault.CodeOf(is.Refusal) == fault.KeyExhausted { // the key has reached its own limit: only another key helps
			return s, false, nil
		}
		return e.remedyOfList(ctx, by, q, is)
	default:
		return s, false, nil
	}
}

// remedyOfList adds the principal to the group that the ACL requires. Without such a group, it extends the principal's
// ACL entry.
func (e *Engine) remedyOfList(ctx context.Context, by keyserver.Caller, q keyserver.Question, is keyserver.Explanation) (s keyserver.Supposition, found bool, err error) {
	right, last := rightFor(q.Operation), is.Steps[len(is.Steps)-1]
	if last.By != nil && last.By.Demands {
		group, err := e.CachedPrincipal(ctx, last.By.ID)
		if err != nil && !errors.Is(err, sqlstore.ErrNotFound) {
			return s, false, err
		}
		if err == nil && last.By.System == e.System && group.Type == keyserver.GroupPrincipal && !group.Flags.Disabled() {
			return keyserver.Supposition{Kind: keyserver.SupposeMember, Principal: by.Principal.ID, Group: group.ID, Name: group.Name}, true, nil
		}
		if !ownerSkipsGroups(q.Operation) { // for this operation, an owner need not be in that group
			return s, false, nil
		}
		right = keyserver.Owner
	}
	entry := access.Amended(is.Entry, right, ownerSkipsGroups(q.Operation), e.Clock())
	return keyserver.Supposition{
		Kind: keyserver.SupposeEntry, Principal: by.Principal.ID, System: by.Principal.System, Link: checkedKey(q, is),
		Rights: entry.Rights, MaxUsage: entry.MaxUsage, Start: entry.Start, End: entry.End,
	}, true, nil
}

// checkedKey returns the key whose ACL was checked, or "" if that is the key of the question.
func checkedKey(q keyserver.Question, is keyserver.Explanation) keyserver.HiddenLink {
	if is.Asked == q.Link {
		return ""
	}
	return is.Asked
}

// rightFor returns the right that the key's ACL must grant for an operation.
func rightFor(op keyserver.Operation) keyserver.Rights {
	switch op.ID {
	case keyserver.OpAmendACL.ID, keyserver.OpExportKey.ID, keyserver.OpChangeKeyState.ID, keyserver.OpRotateKey.ID:
		return keyserver.Owner
	default:
		return keyserver.Read
	}
}

// ownerSkipsGroups reports whether an owner of the key may do the operation without being in the groups that the ACL requires.
func ownerSkipsGroups(op keyserver.Operation) bool {
	switch op.ID {
	case keyserver.OpReadACL.ID, keyserver.OpAmendACL.ID, keyserver.OpChangeKeyState.ID, keyserver.OpRotateKey.ID:
		return true
	default:
		return false
	}
}

// rolesGranting returns the roles that grant an operation, the role with the fewest operations first.
func (e *Engine) rolesGranting(ctx context.Context, op keyserver.Operation) ([]keyserver.Role, error) {
	roles, err := e.Store.Roles(ctx)
	roles = slices.DeleteFunc(roles, func(r keyserver.Role) bool { return !slices.Contains(r.Operations, op.ID) })
	slices.SortStableFunc(roles, func(a, b keyserver.Role) int { return cmp.Compare(len(a.Operations), len(b.Operations)) })
	return roles, err
}
