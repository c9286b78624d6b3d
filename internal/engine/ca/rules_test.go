package ca_test

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/ca"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const year = 365 * 24 * time.Hour

// member returns a CA that was created at the time made and is valid for ten years.
func member(t *testing.T, id uint64, state keyserver.AuthorityState, made time.Time) ca.Member {
	t.Helper()
	authority, err := pki.NewCA("test", made, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	m := ca.Member{Authority: keyserver.Authority{ID: values.IDFromUint64(id), State: state, PreparedAt: made}, Parsed: authority.Certificate}
	if state != keyserver.AuthorityPrepared {
		m.ActivatedAt = made
	}
	return m
}

func retiring(t *testing.T, id uint64, made, since time.Time, inForce bool) ca.Member {
	t.Helper()
	m := member(t, id, keyserver.AuthorityRetiring, made)
	m.RetiringAt, m.InForce = since, inForce
	return m
}

func TestDue(t *testing.T) {
	active := member(t, 1, keyserver.AuthorityActive, start)
	next := member(t, 2, keyserver.AuthorityPrepared, start.Add(5*year))
	late := member(t, 2, keyserver.AuthorityPrepared, start.Add(7*year))
	second := member(t, 2, keyserver.AuthorityActive, start.Add(7*year))
	third := uint64(10 * year / 3)
	cases := map[string]struct {
		reason string
		all    []ca.Member
		at     time.Duration // after the start
		want   ca.Step
	}{
		"Young":          {"half of its life is not over", []ca.Member{active}, 5*year - time.Hour, ca.Step{}},
		"Half":           {"the next one is prepared at half of the life", []ca.Member{active}, 5 * year, ca.Step{Action: ca.Prepare}},
		"PreparedOnce":   {"one is prepared already", []ca.Member{active, next}, 6 * year, ca.Step{}},
		"TwoThirds":      {"it issues at two thirds", []ca.Member{active, next}, time.Duration(2 * third), ca.Step{Action: ca.Activate}},
		"TooSoon":        {"it was prepared a moment ago", []ca.Member{active, late}, 7*year + time.Minute, ca.Step{}},
		"SoonEnough":     {"it was prepared an hour ago", []ca.Member{active, late}, 7*year + ca.MinPreparedTime, ca.Step{Action: ca.Activate}},
		"LastMoment":     {"there is no time to wait for", []ca.Member{active, member(t, 2, keyserver.AuthorityPrepared, start.Add(10*year-time.Minute))}, 10*year - 30*time.Second, ca.Step{Action: ca.Activate}},
		"Expired":        {"nobody would know a successor", []ca.Member{active}, 10 * year, ca.Step{}},
		"Both expired":   {"nobody would know a successor", []ca.Member{active, next}, 16 * year, ca.Step{}},
		"InUse":          {"what it issued is in force", []ca.Member{retiring(t, 1, start, start.Add(7*year), true), second}, 8 * year, ca.Step{}},
		"OutOfUse":       {"nothing that it issued is in force", []ca.Member{retiring(t, 1, start, start.Add(7*year), false), second}, 8 * year, ca.Step{Action: ca.Retire, ID: values.IDFromUint64(1)}},
		"Overlap":        {"others may hold what it issued for a while", []ca.Member{retiring(t, 1, start, start.Add(7*year), false), second}, 7*year + ca.Overlap - time.Hour, ca.Step{}},
		"ItsEnd":         {"it has expired, and vouches for nothing", []ca.Member{retiring(t, 1, start, start.Add(7*year), true), second}, 10*year + time.Hour, ca.Step{Action: ca.Retire, ID: values.IDFromUint64(1)}},
		"NeverIssued":    {"the one that was prepared has expired", []ca.Member{member(t, 3, keyserver.AuthorityPrepared, start.Add(-4*year)), second}, 7 * year, ca.Step{Action: ca.Retire, ID: values.IDFromUint64(3)}},
		"Nothing at all": {"there is no active one", nil, 0, ca.Step{}},
	}
	for name, tc := range cases {
		if got := ca.Due(tc.all, start.Add(tc.at)); got != tc.want {
			t.Errorf("%s: %s: got %+v, want %+v", name, tc.reason, got, tc.want)
		}
	}
}

func TestMayPrepareActivateRetire(t *testing.T) {
	active, next := member(t, 1, keyserver.AuthorityActive, start), member(t, 2, keyserver.AuthorityPrepared, start)
	var many []ca.Member
	for range ca.MaxAuthorities {
		many = append(many, retiring(t, 9, start, start, false))
	}
	may := func(all []ca.Member, early bool, at time.Duration) error {
		_, err := ca.MayActivate(all, early, start.Add(at))
		return err
	}
	retire := func(id uint64) error {
		_, err := ca.MayRetire([]ca.Member{active, next}, values.IDFromUint64(id))
		return err
	}
	both := []ca.Member{active, next}
	for name, tc := range map[string]struct {
		got  error
		want fault.Code
	}{
		"Prepare":             {ca.MayPrepare([]ca.Member{active}), ""},
		"PrepareTwice":        {ca.MayPrepare(both), fault.AuthorityState},
		"PrepareTooMany":      {ca.MayPrepare(many), fault.AuthorityState},
		"ActivateNone":        {may([]ca.Member{active}, true, year), fault.AuthorityState},
		"ActivateTooSoon":     {may(both, false, ca.MinPreparedTime-time.Second), fault.AuthorityState},
		"ActivateEarly":       {may(both, true, 0), ""},
		"Activate":            {may(both, false, ca.MinPreparedTime), ""},
		"ActivateExpired":     {may(both, true, 10*year), fault.AuthorityState},
		"ActivateAfterTheEnd": {may([]ca.Member{active, member(t, 2, keyserver.AuthorityPrepared, start.Add(10*year))}, false, 10*year), ""},
		"RetireTheActive":     {retire(1), fault.AuthorityState},
		"RetireThePrepared":   {retire(2), ""},
		"RetireNone":          {retire(3), fault.NotFound},
	} {
		if (tc.got == nil) != (tc.want == "") || tc.got != nil && fault.CodeOf(tc.got) != tc.want {
			t.Errorf("%s: %v, want %q", name, tc.got, tc.want)
		}
	}
}
