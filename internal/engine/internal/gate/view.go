package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// ErrExplainOnly is the error of every operation whose gate only explains. The gate has decided, and the operation has
// had no effect.
var ErrExplainOnly = errors.New("the gate only explained the request")

// recordDecision records the decision of the gate and returns ErrExplainOnly. It fails if r is not a request for the operation
// of the question.
func (v *View) recordDecision(r Request, refusal error) error {
	if r.Op.ID != v.Question.Operation.ID {
		return fmt.Errorf("the question is about %s, but the request is for %s", v.Question.Operation.Key, r.Op.Key)
	}
	v.Refusal = refusal
	return ErrExplainOnly
}

// WithView returns a copy of the gate that only explains, and the view that records its decision. The copy writes no
// rows, and no operation has an effect.
func (g *Gate) WithView(q keyserver.Question) (*Gate, *View) {
	asking := *g
	asking.view, asking.auditor = &View{behind: g, Question: q}, silent{}
	return &asking, asking.view
}

// silent is an Auditor that writes no rows, for explanations.
type silent struct{}

func (silent) Write(context.Context, keyserver.AuditEntry) error      { return nil }
func (silent) WriteAll(context.Context, []keyserver.AuditEntry) error { return nil }
func (silent) Begin(context.Context, keyserver.AuditEntry) (func() error, error) {
	return func() error { return nil }, nil
}

// View has the question of an explanation, and the result. Most methods of a nil View do nothing.
type View struct {
	behind   *Gate // the gate that decides on real requests
	Question keyserver.Question
	Steps    []keyserver.ExplainedStep
	Refusal  error         // the decision of the gate; nil means allowed
	ACL      keyserver.ACL // the ACL that was evaluated
	Uses     *int64
	cause    *keyserver.Cause // cause of the next step
	detail   string           // detail of the next step if it passes
}

// Step returns refusal. If the gate explains a request, Step also records the result of the step.
func (g *Gate) Step(s keyserver.GateStep, refusal error) error {
	if g.view != nil {
		g.view.note(s, refusal)
	}
	return refusal
}

func (v *View) note(s keyserver.GateStep, refusal error) {
	step := keyserver.ExplainedStep{Step: s, Outcome: keyserver.StepPassed, By: v.cause, Detail: v.detail}
	v.cause, v.detail = nil, ""
	if refusal != nil {
		step.Outcome = keyserver.StepRefused
		if f := fault.As(refusal); f != nil {
			step.Detail = f.Detail
		}
	}
	switch i := slices.IndexFunc(v.Steps, func(had keyserver.ExplainedStep) bool { return had.Step == s }); {
	case i >= 0 && refusal != nil: // a step with two parts failed in its second part: drop the later steps
		v.Steps = append(v.Steps[:i], step)
	case i >= 0:
		v.Steps[i] = step
	default:
		v.Steps = append(v.Steps, step)
	}
}

// noteRemoteStep records that the key's own key server decides the remaining step.
func (v *View) noteRemoteStep(to keyserver.SystemID) {
	if v == nil {
		return
	}
	v.Steps = append(v.Steps, keyserver.ExplainedStep{
		Step: keyserver.StepOwner, Outcome: keyserver.StepNotAsked,
		Detail: fmt.Sprintf("the key belongs to the peer %d, whose ACL decides; explain the request on that key server", to),
	})
}

// setCause sets the cause of the next step.
func (v *View) setCause(c keyserver.Cause) {
	if v != nil {
		cause := c // a copy, so that c itself does not escape to the heap
		v.cause = &cause
	}
}

// Explains reports whether the gate only explains requests, so that no operation has an effect.
func (g *Gate) Explains() bool { return g.view != nil }

// NoteVerdict records the decision of a key's ACL for an explanation.
func (g *Gate) NoteVerdict(acl keyserver.ACL, verdict access.Verdict) {
	v := g.view
	if v == nil {
		return
	}
	if v.ACL = acl; verdict.By.Principal.ID.IsZero() {
		return
	}
	entry := verdict.By
	cause := CauseOf(entry)
	if verdict.Demanded { // the time window of such an entry does not matter
		cause = keyserver.Cause{Kind: cause.Kind, ID: cause.ID, System: cause.System, Demands: true}
	}
	v.setCause(cause)
	if entry.MaxUsage == keyserver.NoUsageLimit || (!verdict.Allowed && !verdict.Spent) {
		return
	}
	left := int64(0)
	for _, limited := range verdict.Limited {
		left += limited.MaxUsage - limited.Used
	}
	v.Uses = &left
}

// CauseOf returns an ACL entry as the cause of a decision.
func CauseOf(entry keyserver.ACLEntry) keyserver.Cause {
	return keyserver.Cause{
		Kind: keyserver.ChangePrincipal, ID: entry.Principal.ID, System: entry.Principal.System, Start: entry.Start, End: entry.End,
	}
}

// approves reports whether the question supposes that the request is approved.
func (v *View) approves() bool {
	return v != nil && slices.ContainsFunc(v.Question.With, func(s keyserver.Supposition) bool { return s.Kind == keyserver.SupposeApproval })
}

// principal reads a principal and applies the suppositions of the question about that principal.
func (v *View) principal(ctx context.Context, id keyserver.ID) (p keyserver.Principal, err error) {
	if p, err = v.behind.CachedPrincipal(ctx, id); err != nil {
		return p, err
	}
	without := func(ids []keyserver.ID, id keyserver.ID) []keyserver.ID {
		return slices.DeleteFunc(slices.Clone(ids), func(have keyserver.ID) bool { return have == id })
	}
	for _, s := range v.Question.With {
		if s.Principal != id {
			continue
		}
		switch s.Kind {
		case keyserver.SupposeRole:
			p.Roles = append(without(p.Roles, s.Role), s.Role)
		case keyserver.SupposeNoRole:
			p.Roles = without(p.Roles, s.Role)
		case keyserver.SupposeMember:
			p.Groups = append(without(p.Groups, s.Group), s.Group)
		case keyserver.SupposeLeft:
			p.Groups = without(p.Groups, s.Group)
		case keyserver.SupposeEnabled:
			p.Flags |= keyserver.FlagEnable
		case keyserver.SupposeDisabled:
			p.Flags &^= keyserver.FlagEnable
		default: // suppositions about other objects
		}
	}
	return p, nil
}

// trust reads the principal trust of a principal for a peer, and applies the suppositions of the question about it.
func (v *View) trust(ctx context.Context, principal keyserver.ID, peer keyserver.SystemID) (rows []keyserver.PrincipalTrust, err error) {
	rows, err = v.behind.CachedTrust(ctx, principal, peer)
	for _, s := range v.Question.With {
		if s.Principal != principal || s.System != peer {
			continue
		}
		switch s.Kind {
		case keyserver.SupposeExposed:
			rows = []keyserver.PrincipalTrust{{Principal: principal, Server: peer, Flag: keyserver.Expose}}
		case keyserver.SupposeHidden:
			rows = []keyserver.PrincipalTrust{{Principal: principal, Server: peer, Flag: keyserver.Restrict}}
		default: // suppositions about other objects
		}
	}
	return rows, err
}
