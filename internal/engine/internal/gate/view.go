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

// ErrExplainOnly is the error of every operation behind a gate that only explains. The gate has decided, and the
// operation has no effect.
var ErrExplainOnly = errors.New("the gate only explained the request")

// asked records the decision of the gate, and returns ErrExplainOnly. It fails if the request is for another operation
// than the question.
func (v *View) asked(r Request, refusal error) error {
	if r.Op.ID != v.Question.Operation.ID {
		return fmt.Errorf("the question is about %s, but the request is for %s", v.Question.Operation.Key, r.Op.Key)
	}
	v.Refusal = refusal
	return ErrExplainOnly
}

// WithView returns the gate with a view that records its decision. That gate writes no rows, and no operation has an
// effect.
func (g *Gate) WithView(q keyserver.Question) (*Gate, *View) {
	asking := *g
	asking.view, asking.auditor = &View{behind: g, Question: q}, silent{}
	return &asking, asking.view
}

// silent is the Auditor of explanations. It writes no rows.
type silent struct{}

func (silent) Write(context.Context, keyserver.AuditEntry) error      { return nil }
func (silent) WriteAll(context.Context, []keyserver.AuditEntry) error { return nil }
func (silent) Begin(context.Context, keyserver.AuditEntry) (func() error, error) {
	return func() error { return nil }, nil
}

// View has the question of an explanation with its suppositions, and the result. Most methods of a nil View do nothing.
type View struct {
	behind   *Gate // without a view
	Question keyserver.Question
	Steps    []keyserver.ExplainedStep
	Refusal  error         // the decision of the gate; nil is allowed
	ACL      keyserver.ACL // the ACL that was evaluated
	Uses     *int64
	cause    *keyserver.Cause // of the step that is recorded next
	detail   string           // detail of the step that is recorded next, if the step passes
}

// Step returns the refusal. For an explanation, it also records the result of the step.
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
	case i >= 0 && refusal != nil: // the second part of a step: drop the steps after the first part
		v.Steps = append(v.Steps[:i], step)
	case i >= 0:
		v.Steps[i] = step
	default:
		v.Steps = append(v.Steps, step)
	}
}

// elsewhere records a step that only the peer can decide.
func (v *View) elsewhere(to keyserver.SystemID) {
	if v == nil {
		return
	}
	v.Steps = append(v.Steps, keyserver.ExplainedStep{
		Step: keyserver.StepOwner, Outcome: keyserver.StepNotAsked,
		Detail: fmt.Sprintf("the key belongs to the peer %d, whose ACL decides; explain the request on that key server", to),
	})
}

// by sets the cause of the step that is recorded next.
func (v *View) by(c keyserver.Cause) {
	if v != nil {
		cause := c // only this copy escapes
		v.cause = &cause
	}
}

// Explains reports whether the gate only explains, so that no operation has an effect.
func (g *Gate) Explains() bool { return g.view != nil }

// NoteVerdict records the verdict of the ACL of a key for an explanation.
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
	if verdict.Demanded { // independent of the time window of the entry
		cause = keyserver.Cause{Kind: cause.Kind, ID: cause.ID, System: cause.System, Demands: true}
	}
	v.by(cause)
	if entry.MaxUsage == keyserver.NoUsageLimit || (!verdict.Allowed && !verdict.Spent) {
		return
	}
	left := int64(0)
	for _, limited := range verdict.Limited {
		left += limited.MaxUsage - limited.Used
	}
	v.Uses = &left
}

// CauseOf returns an ACL entry that grants rights as a cause.
func CauseOf(entry keyserver.ACLEntry) keyserver.Cause {
	return keyserver.Cause{
		Kind: keyserver.ChangePrincipal, ID: entry.Principal.ID, System: entry.Principal.System, Start: entry.Start, End: entry.End,
	}
}

// approves reports whether the question supposes an approval.
func (v *View) approves() bool {
	return v != nil && slices.ContainsFunc(v.Question.With, func(s keyserver.Supposition) bool { return s.Kind == keyserver.SupposeApproval })
}

// principal reads a principal and applies the suppositions of the question.
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
		default: // a supposition about another kind of object
		}
	}
	return p, nil
}

// trust reads the trust row of a principal for a peer and applies the suppositions of the question.
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
		default: // a supposition about another kind of object
		}
	}
	return rows, err
}
