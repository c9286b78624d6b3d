package chaos

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// most is how many findings of one kind are printed.
const most = 5

func report(t *testing.T, wrong []string) {
	t.Helper()
	for i, one := range wrong {
		if i == most {
			t.Errorf("and %d more like that", len(wrong)-most)
			return
		}
		t.Error(one)
	}
}

// check reads a site back, through each of its processes, and compares.
func (s *site) check(t *testing.T, round int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*rig.Patience)
	defer cancel()
	names := s.ledger.names(false)
	var wrong []string
	var took []*attempt
	for i, m := range s.members {
		var now map[string]string
		through := s.client(t, i, 5)
		// A machine with too much to do may need more than one try.
		rig.Succeeds(t, func() (err error) {
			now, err = s.observe(ctx, through, m, names)
			return err
		})
		for _, name := range names {
			if _, ok := now[name]; !ok {
				now[name] = ""
			}
		}
		for name, value := range now {
			// The first one settles what was not answered, for the others too.
			effect, bad := s.ledger.settle(name, value)
			if bad != "" {
				wrong = append(wrong, m.name+": "+bad)
			}
			if effect != nil {
				took = append(took, effect)
			}
		}
	}
	report(t, wrong)
	if err := s.macs.check(ctx, s.admin, false); err != nil {
		t.Errorf("round %d: %v", round, err)
	}
	if err := s.trail.follow(ctx, s.admin); err != nil {
		t.Fatalf("round %d: read the audit trail of %s: %v", round, s.name, err)
	}
	wrong = nil
	for _, effect := range took {
		rows := 0
		for _, id := range effect.requests {
			rows += s.trail.count(id, effect.operation, "allowed")
		}
		if rows == 0 {
			wrong = append(wrong, fmt.Sprintf("%s of %v took effect (%s), and no audit row says so", effect.operation, effect.requests, effect.value))
		}
	}
	report(t, wrong)
}

// compare holds the trails of all sites, which check has read, against what was asked.
func (w *world) compare(t *testing.T, disturbed bool) {
	t.Helper()
	for _, s := range w.sites {
		if s.forwards != nil {
			report(t, s.forwards.check(&s.forwards.owner.trail, disturbed))
		}
	}
	for _, s := range w.sites {
		report(t, s.witness.compare(&s.trail))
	}
}

// observe reads the state of the named objects, and of everything of the workers that
// there is a list of, whether or not a client ever asked for it.
func (s *site) observe(ctx context.Context, c *client.Client, m *member, names []string) (map[string]string, error) {
	var mu sync.Mutex
	now := map[string]string{}
	put := func(name, value string) {
		mu.Lock()
		defer mu.Unlock()
		now[name] = value
	}
	roles, err := c.ListRoles(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range roles.Roles {
		if strings.HasPrefix(r.Name, mine) {
			put("role "+r.Name, roleValue(r.Operations))
		}
	}
	cas, err := c.ListTrustedCAs(ctx, schema.TrustedCAsQuery{})
	if err != nil {
		return nil, err
	}
	for _, ca := range cas.TrustedCAs {
		if ca.Subject != nil && strings.Contains(*ca.Subject, s.name+" ") {
			put("CA "+fingerprintOf(ca), "trusted")
		}
	}
	trusts, err := c.ListPrincipalTrusts(ctx, schema.PrincipalTrustsQuery{})
	if err != nil {
		return nil, err
	}
	for _, p := range trusts.PrincipalTrusts {
		if *p.PrincipalID == hexOf(s.stranger.PrincipalID) {
			put("principal trust "+p.PrincipalID.String(), *p.FlagLabel)
		}
	}
	templates, err := c.ListACLTemplates(ctx, schema.ACLTemplateQuery{})
	if err != nil {
		return nil, err
	}
	err = each(templates.Templates, func(l schema.ACLTemplate) error {
		if strings.HasPrefix(l.Name, mine) {
			put("template "+l.Name, map[bool]string{true: "with the user", false: "without the user"}[l.MemberCount > 1])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return now, each(names, func(name string) error {
		switch kind, id, _ := strings.Cut(name, " "); kind {
		case "key":
			return s.observeKey(ctx, c, id, put)
		case "principal":
			if strings.HasPrefix(id, "trust ") {
				return nil
			}
			principal, err := schema.ParseHexID(id)
			if err != nil {
				return err
			}
			p, err := c.GetPrincipal(ctx, schema.ByID{ID: principal})
			if client.IsCode(err, "NOT_FOUND") {
				return nil
			}
			put(name, idsOf(p.RoleIDs))
			return err
		case "session":
			live, err := s.live(ctx, m, id)
			if live {
				put(name, "live")
			}
			return err
		}
		return nil
	})
}

func (s *site) observeKey(ctx context.Context, c *client.Client, id string, put func(name, value string)) error {
	var link schema.HiddenLink
	if err := link.UnmarshalText([]byte(id)); err != nil {
		return err
	}
	got, err := c.GetACL(ctx, schema.KeyRequest{TTag: link})
	if client.IsCode(err, "ACL_NOT_FOUND") {
		return nil
	}
	if err != nil {
		return err
	}
	put("key "+id, "there")
	for _, e := range got.ACL.Entries {
		if e.PrincipalID == s.stranger.PrincipalID {
			put("entry on "+id, fmt.Sprint(uint32(e.Rights)))
		}
	}
	return nil
}
