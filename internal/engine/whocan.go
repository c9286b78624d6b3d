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

// maxCandidates is the maximum number of principals that are checked for one page. If the page is not full then, it
// ends early, and the next page continues.
const maxCandidates = 2000

// WhoCan implements keyserver.Explanations. The gate checks candidates in the order of their ids: the principals in the
// key's ACL or, without a key, with a role for the operation. Members of such groups are candidates, too.
func (e *Engine) WhoCan(ctx context.Context, by keyserver.Caller, c keyserver.WhoCanQuery) (page keyserver.WhoCanPage, err error) {
	object := c.Operation.Key
	if c.Link != "" {
		object += " " + c.Link.Base64()
	}
	err = e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpExplainAccess, Object: object}, func() (err error) {
		page, err = e.listCapable(ctx, by, c)
		return err
	})
	return page, err
}

func (e *Engine) listCapable(ctx context.Context, by keyserver.Caller, c keyserver.WhoCanQuery) (page keyserver.WhoCanPage, err error) {
	candidates, entries, err := e.candidates(ctx, c)
	if err != nil {
		return page, err
	}
	if c.After.IsZero() {
		page.Foreign = e.foreignOf(c, entries)
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
		case may && len(page.Principals) == c.Limit: // a further principal is allowed, so there is another page
			page.Next = page.Principals[c.Limit-1].Principal.ID
			return page, nil
		case may:
			page.Principals = append(page.Principals, who)
		}
		candidates.last = id
	}
}

// capable checks one principal with the gate. may reports whether the operation is allowed.
func (e *Engine) capable(ctx context.Context, by keyserver.Caller, c keyserver.WhoCanQuery, id keyserver.ID) (who keyserver.Capable, may bool, err error) {
	p, err := e.CachedPrincipal(ctx, id)
	switch {
	case errors.Is(err, sqlstore.ErrNotFound), err == nil && p.Type == keyserver.GroupPrincipal:
		return who, false, nil
	case err != nil:
		return who, false, err
	}
	as, err := e.callerOf(ctx, by, id)
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

// foreignOf returns the principals of peers that the ACL allows.
func (e *Engine) foreignOf(c keyserver.WhoCanQuery, acl keyserver.ACL) (all []keyserver.Capable) {
	if !c.Operation.Forwarded() {
		return nil
	}
	for _, entry := range acl.Entries {
		who := access.Subject{Principal: entry.Principal}
		lets := ownerSkipsGroups(c.Operation) && access.Owns(acl, who, e.Clock()) || access.Evaluate(acl, who, rightFor(c.Operation), e.Clock()).Allowed
		if entry.Principal.System == e.System || !lets {
			continue
		}
		all = append(all, keyserver.Capable{Principal: entry.Principal, By: []keyserver.Cause{gate.CauseOf(entry)}})
	}
	return all
}

// candidates returns the ids of the principals that WhoCan checks: those in the key's ACL or, without a key, those with
// a role that grants the operation. It also returns the ACL.
func (e *Engine) candidates(ctx context.Context, c keyserver.WhoCanQuery) (*merged, keyserver.ACL, error) {
	m := &merged{last: c.After, prefetch: e.Prefetch}
	if c.Link == "" {
		return m, keyserver.ACL{}, e.candidatesByRole(ctx, c.Operation, m)
	}
	if to, foreign := e.Foreign(c.Link); foreign {
		return nil, keyserver.ACL{}, fault.New(fault.InvalidArgument, "hiddenLink: the key belongs to the peer %d, whose ACL decides; send the question to that peer", to).
			Audited(fault.ReasonInvalidArgument)
	}
	acl, err := e.DecidingACL(ctx, c)
	if err != nil {
		return nil, acl, err
	}
	if err := e.Prefetch(ctx, localOf(acl, e.System)); err != nil {
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

// localOf returns the ids of the principals of this key server in an ACL.
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

// merged merges the ids of several sources. It returns each id once, in order, from a given id on.
type merged struct {
	last     keyserver.ID // the last id that was returned
	sources  []*source
	prefetch func(ctx context.Context, ids []keyserver.ID) error // called with the ids that come next
}

// source is one source of ids. The first call of next reads its first ids.
type source struct {
	read  func(ctx context.Context, after keyserver.ID, n int) ([]keyserver.ID, error)
	ahead []keyserver.ID
	ended bool
}

// ahead is the number of ids that are read from a source at once.
const ahead = 128

func (m *merged) follow(read func(ctx context.Context, after keyserver.ID, n int) ([]keyserver.ID, error)) {
	m.sources = append(m.sources, &source{read: read})
}

// alone adds a source with a single id.
func (m *merged) alone(id keyserver.ID) {
	m.follow(func(_ context.Context, after keyserver.ID, _ int) ([]keyserver.ID, error) {
		if slices.Compare(id[:], after[:]) <= 0 {
			return nil, nil
		}
		return []keyserver.ID{id}, nil
	})
}

// next returns the smallest id that is greater than m.last.
func (m *merged) next(ctx context.Context) (least keyserver.ID, found bool, err error) {
	for _, s := range m.sources {
		if err := s.fill(ctx, m.last, m.prefetch); err != nil {
			return least, false, err
		}
		if len(s.ahead) > 0 && (!found || slices.Compare(s.ahead[0][:], least[:]) < 0) {
			least, found = s.ahead[0], true
		}
	}
	return least, found, nil
}

// fill drops the ids up to after. If no ids remain, it reads more.
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
