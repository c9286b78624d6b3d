package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// maxCandidates bounds how many principals one page asks the gate about. A page that comes
// to it is shorter, and the next one goes on.
const maxCandidates = 2000

// WhoCan implements keyserver.Explanations. It asks the gate about whoever has an entry on
// the key's list or a role for the operation, himself or by a group, in the order of ids.
func (e *Engine) WhoCan(ctx context.Context, by keyserver.Caller, c keyserver.Crowd) (page keyserver.CrowdPage, err error) {
	object := c.Operation.Key
	if c.Link != "" {
		object += " " + c.Link.Base64()
	}
	err = e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpExplainAccess, Object: object}, func() (err error) {
		page, err = e.crowd(ctx, by, c)
		return err
	})
	return page, err
}

func (e *Engine) crowd(ctx context.Context, by keyserver.Caller, c keyserver.Crowd) (page keyserver.CrowdPage, err error) {
	candidates, entries, err := e.candidates(ctx, c)
	if err != nil {
		return page, err
	}
	if c.After.IsZero() {
		page.Elsewhere = e.elsewhereOf(c, entries)
	}
	for asked := 0; ; asked++ {
		id, found, err := candidates.next(ctx)
		if err != nil || !found {
			return page, err
		}
		if asked == maxCandidates {
			page.Next = candidates.last
			return page, nil
		}
		who, may, err := e.capable(ctx, by, c, id)
		switch {
		case err != nil:
			return page, err
		case may && len(page.Who) == c.Limit: // there is one more
			page.Next = page.Who[c.Limit-1].Principal.ID
			return page, nil
		case may:
			page.Who = append(page.Who, who)
		}
		candidates.last = id
	}
}

// capable asks the gate about one principal.
func (e *Engine) capable(ctx context.Context, by keyserver.Caller, c keyserver.Crowd, id keyserver.ID) (who keyserver.Capable, may bool, err error) {
	p, err := e.CachedPrincipal(ctx, id)
	switch {
	case errors.Is(err, sqlstore.ErrNotFound), err == nil && p.Type == keyserver.GroupPrincipal:
		return who, false, nil
	case err != nil:
		return who, false, err
	}
	as, err := e.asIf(ctx, by, id)
	if err != nil {
		return who, false, err
	}
	is, err := e.explained(ctx, as, keyserver.Question{Operation: c.Operation, Link: c.Link})
	if err != nil || !is.Allowed {
		return who, false, err
	}
	who = keyserver.Capable{Principal: p.Ref(), Name: p.Name, Type: p.Type}
	for _, step := range is.Steps {
		if step.By != nil {
			who.By = append(who.By, *step.By)
		}
	}
	return who, true, nil
}

// elsewhereOf are the principals of peers that a list lets.
func (e *Engine) elsewhereOf(c keyserver.Crowd, acl keyserver.ACL) (all []keyserver.Capable) {
	if !c.Operation.Forwarded() {
		return nil
	}
	for _, entry := range acl.Entries {
		who := access.Subject{Principal: entry.Principal}
		lets := aboutList(c.Operation) && access.Owns(acl, who, e.Clock()) || access.Evaluate(acl, who, rightFor(c.Operation), e.Clock()).Allowed
		if entry.Principal.System == e.System || !lets {
			continue
		}
		all = append(all, keyserver.Capable{Principal: entry.Principal, By: []keyserver.Cause{gate.CauseOf(entry)}})
	}
	return all
}

// candidates are whoever may be let: of a key whoever its list names, otherwise whoever
// has a role that grants the operation.
func (e *Engine) candidates(ctx context.Context, c keyserver.Crowd) (*merged, keyserver.ACL, error) {
	m := &merged{last: c.After, foresee: e.Foresee}
	if c.Link == "" {
		return m, keyserver.ACL{}, e.candidatesByRole(ctx, c.Operation, m)
	}
	if to, foreign := e.Foreign(c.Link); foreign {
		return nil, keyserver.ACL{}, fault.New(fault.InvalidArgument, "hiddenLink: the key belongs to the peer %d, whose list decides; ask there", to).
			Audited(fault.ReasonInvalidArgument)
	}
	acl, err := e.AskedACL(ctx, c)
	if err != nil {
		return nil, acl, err
	}
	if err := e.Foresee(ctx, localOf(acl, e.System)); err != nil {
		return nil, acl, err
	}
	for _, entry := range acl.Entries {
		if entry.Principal.System != e.System {
			continue
		}
		m.alone(entry.Principal.ID)
		m.follow(func(ctx context.Context, after keyserver.ID, n int) ([]keyserver.ID, error) {
			return e.Store.MembersAfter(ctx, entry.Principal.ID, after, n)
		})
	}
	return m, acl, nil
}

// localOf are the principals of this key server that a list names.
func localOf(acl keyserver.ACL, system keyserver.SystemID) (ids []keyserver.ID) {
	for _, entry := range acl.Entries {
		if entry.Principal.System == system {
			ids = append(ids, entry.Principal.ID)
		}
	}
	return ids
}

func (e *Engine) candidatesByRole(ctx context.Context, op keyserver.Operation, m *merged) error {
	roles, err := e.Store.Roles(ctx)
	if err != nil {
		return err
	}
	for _, role := range roles {
		if !slices.Contains(role.Operations, op.ID) {
			continue
		}
		m.follow(func(ctx context.Context, after keyserver.ID, n int) ([]keyserver.ID, error) {
			return e.Store.HoldersAfter(ctx, role.ID, after, n)
		})
		groups, err := e.Store.GroupsWith(ctx, role.ID)
		if err != nil {
			return err
		}
		for _, group := range groups {
			m.follow(func(ctx context.Context, after keyserver.ID, n int) ([]keyserver.ID, error) {
				return e.Store.MembersAfter(ctx, group, after, n)
			})
		}
	}
	return nil
}

// merged hands out, in order and each once, what several sources have behind an id.
type merged struct {
	last    keyserver.ID // what was dealt with last
	sources []*source
	foresee func(ctx context.Context, ids []keyserver.ID) error // is told what comes
}

// source is one of them. Its first id is read when it is asked for.
type source struct {
	read  func(ctx context.Context, after keyserver.ID, n int) ([]keyserver.ID, error)
	ahead []keyserver.ID
	ended bool
}

// ahead is how many ids of a source are read at a time.
const ahead = 128

func (m *merged) follow(read func(ctx context.Context, after keyserver.ID, n int) ([]keyserver.ID, error)) {
	m.sources = append(m.sources, &source{read: read})
}

// alone is a source of one.
func (m *merged) alone(id keyserver.ID) {
	m.follow(func(_ context.Context, after keyserver.ID, _ int) ([]keyserver.ID, error) {
		if slices.Compare(id[:], after[:]) <= 0 {
			return nil, nil
		}
		return []keyserver.ID{id}, nil
	})
}

// next answers what follows the last.
func (m *merged) next(ctx context.Context) (least keyserver.ID, found bool, err error) {
	for _, s := range m.sources {
		if err := s.fill(ctx, m.last, m.foresee); err != nil {
			return least, false, err
		}
		if len(s.ahead) > 0 && (!found || slices.Compare(s.ahead[0][:], least[:]) < 0) {
			least, found = s.ahead[0], true
		}
	}
	return least, found, nil
}

// fill reads on where nothing behind an id is left.
func (s *source) fill(ctx context.Context, after keyserver.ID, foresee func(context.Context, []keyserver.ID) error) (err error) {
	for len(s.ahead) > 0 && slices.Compare(s.ahead[0][:], after[:]) <= 0 {
		s.ahead = s.ahead[1:]
	}
	if len(s.ahead) > 0 || s.ended {
		return nil
	}
	if s.ahead, err = s.read(ctx, after, ahead); err != nil {
		return err
	}
	s.ended = len(s.ahead) < ahead
	return foresee(ctx, s.ahead)
}
