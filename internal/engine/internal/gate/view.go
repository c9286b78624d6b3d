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

// ErrAsked is the error of every operation behind a gate that is only asked. The gate has decided, and the operation has
// no effect.
var ErrAsked = errors.New("the gate was only asked")

// asked notes what the gate says.
func (v *View) asked(r Request, refusal error) error {
	if r.Op.ID != v.Question.Operation.ID {
		return fmt.Errorf("%s was asked about, and %s came to the gate", v.Question.Operation.Key, r.Op.Key)
	}
	v.Refusal = refusal
	return ErrAsked
}

// Asking returns the gate with a view that notes its decision. It writes no rows, and nothing passes it.
func (g *Gate) Asking(q keyserver.Question) (*Gate, *View) {
	asking := *g
	asking.view, asking.auditor = &View{behind: g, Question: q}, silent{}
	return &asking, asking.view
}

// silent is the trail of what is only asked.
type silent struct{}

func (silent) Write(context.Context, keyserver.AuditEntry) error      { return nil }
func (silent) WriteAll(context.Context, []keyserver.AuditEntry) error { return nil }
func (silent) Begin(context.Context, keyserver.AuditEntry) (func() error, error) {
	return func() error { return nil }, nil
}

// View is what a gate that explains has besides: the question, with what is to be
// supposed, and what has come of it. Without one its methods do nothing.
type View struct {
	behind   *Gate // without a view
	Question keyserver.Question
	Steps    []keyserver.ExplainedStep
	Refusal  error         // what the gate said
	ACL      keyserver.ACL // the list that was asked
	Uses     *int64
	cause    *keyserver.Cause // of the step that is noted next
	detail   string           // of the step that is noted next, if it passes
}

// Step notes how a question of the gate came out, if a view asks, and hands
// the refusal on.
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
	case i >= 0 && refusal != nil: // asked in two parts, and no question between them counts
		v.Steps = append(v.Steps[:i], step)
	case i >= 0:
		v.Steps[i] = step
	default:
		v.Steps = append(v.Steps, step)
	}
}

// elsewhere notes what is not for this key server to say.
func (v *View) elsewhere(to keyserver.SystemID) {
	if v == nil {
		return
	}
	v.Steps = append(v.Steps, keyserver.ExplainedStep{
		Step: keyserver.StepOwner, Outcome: keyserver.StepNotAsked,
		Detail: fmt.Sprintf("the key belongs to the peer %d, whose list decides; ask there", to),
	})
}

// by names what the step that is noted next came out by.
func (v *View) by(c keyserver.Cause) {
	if v != nil {
		v.cause = &c
	}
}

// Explains reports whether nothing passes the gate, because it is only asked.
func (g *Gate) Explains() bool { return g.view != nil }

// NoteVerdict notes what the list of a key says.
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
	if verdict.Demanded { // whatever the window of its entry is
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

// CauseOf names an entry that gives rights.
func CauseOf(entry keyserver.ACLEntry) keyserver.Cause {
	return keyserver.Cause{
		Kind: keyserver.ChangePrincipal, ID: entry.Principal.ID, System: entry.Principal.System, Start: entry.Start, End: entry.End,
	}
}

// approves reports whether the approval is supposed.
func (v *View) approves() bool {
	return v != nil && slices.ContainsFunc(v.Question.With, func(s keyserver.Supposition) bool { return s.Kind == keyserver.SupposeApproval })
}

// principal is a principal with what is supposed of it.
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
		default: // of something else
		}
	}
	return p, nil
}

// trust is the row of a principal for a peer, with what is supposed of it.
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
		default: // of something else
		}
	}
	return rows, err
}
