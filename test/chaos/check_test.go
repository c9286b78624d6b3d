package chaos

import (
	"context"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/ledger"
)

// check reads the state of a site through each process, and compares it with the acknowledged changes.
func (s *site) check(t *testing.T, round int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ledger.Unaudited(t.Context()), 3*rig.Patience)
	defer cancel()
	names := s.objects.Names(false)
	var findings []string
	var effects []ledger.Change
	for i, m := range s.members {
		var now map[string]string
		through := s.client(t, i, 5)
		// On an overloaded machine, the first attempts may fail.
		rig.Succeeds(t, func() (err error) {
			now, err = s.observe(ctx, through, m, names)
			return err
		})
		// The first comparison also finds out whether changes without a response took effect.
		took, wrong := s.objects.Compare(names, now)
		effects = append(effects, took...)
		for _, one := range wrong {
			findings = append(findings, m.name+": "+one)
		}
	}
	ledger.Report(t, findings)
	if err := s.macs.Check(ctx, s.admin, false); err != nil {
		t.Errorf("round %d: %v", round, err)
	}
	if err := s.log.Read(ctx, s.admin); err != nil {
		t.Fatalf("round %d: %s: %v", round, s.name, err)
	}
	ledger.Report(t, s.requests.Effects(&s.log, effects))
}

// compare compares the audit logs of all sites with the sent requests. check must have read the logs.
func (w *world) compare(t *testing.T, disturbed bool) {
	t.Helper()
	for _, s := range w.sites {
		if s.forwards != nil {
			ledger.Report(t, s.forwards.check(&s.forwards.owner.log, disturbed))
		}
	}
	for _, s := range w.sites {
		ledger.Report(t, s.requests.Compare(&s.log))
	}
}

// observe reads the state of the named objects, and of all listed objects of the workers, even if
// no client ever used them.
func (s *site) observe(ctx context.Context, c *client.Client, m *member, names []string) (map[string]string, error) {
	view := ledger.View{
		Client: c, Sessions: m.sessions(), Grantee: s.stranger.PrincipalID,
		Mine: func(name string) bool { return strings.Contains(name, mine) },
	}
	now, err := view.Read(ctx, names)
	if err != nil {
		return nil, err
	}
	trusts, err := c.ListPrincipalTrusts(ctx, schema.PrincipalTrustsQuery{})
	if err != nil {
		return nil, err
	}
	for _, p := range trusts.PrincipalTrusts {
		if *p.PrincipalID == hexOf(s.stranger.PrincipalID) {
			now["trust of principal "+p.PrincipalID.String()] = *p.FlagLabel
		}
	}
	templates, err := c.ListACLTemplates(ctx, schema.ACLTemplateQuery{})
	if err != nil {
		return nil, err
	}
	for _, l := range templates.Templates {
		if strings.HasPrefix(l.Name, mine) {
			now["template "+l.Name] = map[bool]string{true: "with the user", false: "without the user"}[l.MemberCount > 1]
		}
	}
	return now, nil
}
