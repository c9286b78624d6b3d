package authority_test

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/authority"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const year = 365 * 24 * time.Hour

// member is an authority that was made at a time, with a life of ten years.
func member(t *testing.T, id uint64, state keyserver.AuthorityState, made time.Time) authority.Member {
	t.Helper()
	ca, err := pki.NewCA("test", made, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	m := authority.Member{Authority: keyserver.Authority{ID: keyserver.IDFromUint64(id), State: state, PreparedAt: made}, Parsed: ca.Certificate}
	if state != keyserver.AuthorityPrepared {
		m.ActivatedAt = made
	}
	return m
}

func retiring(t *testing.T, id uint64, made, since time.Time, inForce bool) authority.Member {
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
		all    []authority.Member
		at     time.Duration // after the start
		want   authority.Step
	}{
		"Young":          {"half of its life is not over", []authority.Member{active}, 5*year - time.Hour, authority.Step{}},
		"Half":           {"the next one is prepared at half of the life", []authority.Member{active}, 5 * year, authority.Step{Action: authority.Prepare}},
		"PreparedOnce":   {"one is prepared already", []authority.Member{active, next}, 6 * year, authority.Step{}},
		"TwoThirds":      {"it issues at two thirds", []authority.Member{active, next}, time.Duration(2 * third), authority.Step{Action: authority.Activate}},
		"TooSoon":        {"it was prepared a moment ago", []authority.Member{active, late}, 7*year + time.Minute, authority.Step{}},
		"SoonEnough":     {"it was prepared an hour ago", []authority.Member{active, late}, 7*year + authority.Dwell, authority.Step{Action: authority.Activate}},
		"LastMoment":     {"there is no time to wait for", []authority.Member{active, member(t, 2, keyserver.AuthorityPrepared, start.Add(10*year-time.Minute))}, 10*year - 30*time.Second, authority.Step{Action: authority.Activate}},
		"Expired":        {"nobody would know a successor", []authority.Member{active}, 10 * year, authority.Step{}},
		"Both expired":   {"nobody would know a successor", []authority.Member{active, next}, 16 * year, authority.Step{}},
		"InUse":          {"what it issued is in force", []authority.Member{retiring(t, 1, start, start.Add(7*year), true), second}, 8 * year, authority.Step{}},
		"OutOfUse":       {"nothing that it issued is in force", []authority.Member{retiring(t, 1, start, start.Add(7*year), false), second}, 8 * year, authority.Step{Action: authority.Retire, ID: keyserver.IDFromUint64(1)}},
		"Overlap":        {"others may hold what it issued for a while", []authority.Member{retiring(t, 1, start, start.Add(7*year), false), second}, 7*year + authority.Overlap - time.Hour, authority.Step{}},
		"ItsEnd":         {"it has expired, and vouches for nothing", []authority.Member{retiring(t, 1, start, start.Add(7*year), true), second}, 10*year + time.Hour, authority.Step{Action: authority.Retire, ID: keyserver.IDFromUint64(1)}},
		"NeverIssued":    {"the one that was prepared has expired", []authority.Member{member(t, 3, keyserver.AuthorityPrepared, start.Add(-4*year)), second}, 7 * year, authority.Step{Action: authority.Retire, ID: keyserver.IDFromUint64(3)}},
		"Nothing at all": {"there is no active one", nil, 0, authority.Step{}},
	}
	for name, tc := range cases {
		if got := authority.Due(tc.all, start.Add(tc.at)); got != tc.want {
			t.Errorf("%s: %s: got %+v, want %+v", name, tc.reason, got, tc.want)
		}
	}
}

func TestMayPrepareActivateRetire(t *testing.T) {
	active, next := member(t, 1, keyserver.AuthorityActive, start), member(t, 2, keyserver.AuthorityPrepared, start)
	var many []authority.Member
	for range authority.Most {
		many = append(many, retiring(t, 9, start, start, false))
	}
	may := func(all []authority.Member, early bool, at time.Duration) error {
		_, err := authority.MayActivate(all, early, start.Add(at))
		return err
	}
	retire := func(id uint64) error {
		_, err := authority.MayRetire([]authority.Member{active, next}, keyserver.IDFromUint64(id))
		return err
	}
	both := []authority.Member{active, next}
	for name, tc := range map[string]struct {
		got  error
		want fault.Code
	}{
		"Prepare":             {authority.MayPrepare([]authority.Member{active}), ""},
		"PrepareTwice":        {authority.MayPrepare(both), fault.AuthorityState},
		"PrepareTooMany":      {authority.MayPrepare(many), fault.AuthorityState},
		"ActivateNone":        {may([]authority.Member{active}, true, year), fault.AuthorityState},
		"ActivateTooSoon":     {may(both, false, authority.Dwell-time.Second), fault.AuthorityState},
		"ActivateEarly":       {may(both, true, 0), ""},
		"Activate":            {may(both, false, authority.Dwell), ""},
		"ActivateExpired":     {may(both, true, 10*year), fault.AuthorityState},
		"ActivateAfterTheEnd": {may([]authority.Member{active, member(t, 2, keyserver.AuthorityPrepared, start.Add(10*year))}, false, 10*year), ""},
		"RetireTheActive":     {retire(1), fault.AuthorityState},
		"RetireThePrepared":   {retire(2), ""},
		"RetireNone":          {retire(3), fault.NotFound},
	} {
		if (tc.got == nil) != (tc.want == "") || tc.got != nil && fault.CodeOf(tc.got) != tc.want {
			t.Errorf("%s: %v, want %q", name, tc.got, tc.want)
		}
	}
}
