// Package scale measures whether the work of a key server for one request stays the same when its
// store has a hundred or a thousand times as many objects.
package scale

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// The compared numbers of objects, and the permitted ratio of durations.
const (
	fewPrincipals, manyPrincipals = 1_000, 100_000
	fewKeys, manyKeys             = 1_000, 1_000_000
	tolerance                     = 1.20
	minPairs                      = 200 // of measurements; fewer are not significant
	attempts                      = 4
)

var ctx = context.Background()

// side is a key server with one store, and callers with separate keys.
type side struct {
	*enginetest.Fixture
	agent            keyserver.Caller // a transport principal with READ on each of links
	auditor          keyserver.Caller
	links            []keyserver.HiddenLink
	common           keyserver.HiddenLink // of a key that every principal may read
	principals, keys int                  // in the store
}

const ownKeys = 256

func newSide(b *testing.B, database string, principals, keys int) *side {
	b.Helper()
	config := enginetest.Databases[database](b)
	s := &side{Fixture: enginetest.New(b, config), principals: principals, keys: keys}
	everybody := s.Add(b, keyserver.GroupPrincipal, "everybody", nil, nil).Principal.ID
	s.agent = s.Add(b, keyserver.CertificatePrincipal, "agent", []keyserver.ID{keyserver.RoleExchanger}, []keyserver.ID{everybody})
	s.auditor = s.Add(b, keyserver.CertificatePrincipal, "auditor", []keyserver.ID{keyserver.RoleAuditor}, nil)
	began := time.Now()
	load(b, config, everybody, principals, keys)
	_, err := s.Store.SealRows(ctx, s.Keyring.RowKey(), func(*sqlstore.Tx) (bool, error) { return true, nil })
	rig.Must(b, err)
	b.Logf("%s: %d principals and %d keys loaded in %v", database, principals, keys, time.Since(began).Round(time.Millisecond))
	for range ownKeys {
		key, err := s.MintKey(ctx, s.Admin, keyserver.NewKey{Algorithm: keyserver.HMACSHA384})
		rig.Must(b, err)
		rig.Must(b, s.GrantACL(ctx, s.Admin, keyserver.ACLChange{Link: key.Link, Principal: s.agent.Principal, Rights: keyserver.Read, MaxUsage: keyserver.NoUsageLimit}))
		s.links = append(s.links, key.Link)
	}
	common, err := s.MintKey(ctx, s.Admin, keyserver.NewKey{Algorithm: keyserver.HMACSHA384})
	rig.Must(b, err)
	s.common = common.Link
	rig.Must(b, s.GrantACL(ctx, s.Admin, keyserver.ACLChange{
		Link: common.Link, Principal: keyserver.PrincipalRef{System: s.agent.Principal.System, ID: everybody}, Rights: keyserver.Read, MaxUsage: keyserver.NoUsageLimit,
	}))
	return s
}

// work has one request of each kind. n differs between calls.
var work = []struct {
	name   string
	judged bool // the benchmark fails above the tolerance
	do     func(s *side, n int) error
}{
	{"keys-get", true, func(s *side, n int) error {
		_, err := s.Key(ctx, s.agent, s.links[n%len(s.links)])
		return err
	}},
	{"authorize", true, func(s *side, n int) error {
		_, err := s.AuthorizeKey(ctx, s.agent, keyserver.Use{Link: s.links[n%len(s.links)]})
		return err
	}},
	{"hmac", true, func(s *side, n int) error {
		_, err := s.HMAC(ctx, s.agent, keyserver.HMACRequest{Link: s.links[n%len(s.links)], Message: strings.NewReader("message")})
		return err
	}},
	// The agent may read every key, by its group.
	{"keys-first-page", true, func(s *side, _ int) error { return s.keysPage("") }},
	{"keys-page", true, func(s *side, n int) error {
		return s.keysPage(values.NewHiddenLink(1, spread(keyID, s.keys/2+n)))
	}},
	{"principals-page", true, func(s *side, n int) error { return s.page("", 500, 0) }},
	{"principals-by-name", true, func(s *side, n int) error { return s.page("user-0000", 50, n%40) }},
	// Every principal may read the key, by its group. Reported only: the more principals, the fewer of them are in a
	// cache.
	{"who-can-first-page", false, func(s *side, _ int) error { return s.whoCan(keyserver.ID{}) }},
	{"who-can-page", false, func(s *side, n int) error { return s.whoCan(spread(principalID, s.principals/2+n%(s.principals/4))) }},
	// Reported only: contract 9.1 pages by offset, so that the database has to count the skipped rows.
	{"principals-last-page", false, func(s *side, n int) error {
		return s.page("", 500, s.principals-500)
	}},
	// Reported only: the cost of a key that is in no cache depends on how much of the store the machine keeps in
	// memory.
	{"cold-key", false, func(s *side, n int) error {
		id := spread(keyID, 1+n*7919%s.keys)
		if _, err := s.Store.Key(ctx, id); err != nil {
			return err
		}
		_, err := s.Store.ACL(ctx, id)
		return err
	}},
}

func (s *side) keysPage(after keyserver.HiddenLink) error {
	page, err := s.ListKeys(ctx, s.agent, keyserver.KeyFilter{After: after, Limit: 100})
	if err == nil && (len(page.Keys) != 100 || page.Next == "") {
		err = fmt.Errorf("a page of 100 keys came back with %d", len(page.Keys))
	}
	return err
}

// whoCan reads a page of the principals that may use a key that every principal may use. The loaded keys cannot be
// used, because their bytes cannot be unwrapped.
func (s *side) whoCan(after keyserver.ID) error {
	page, err := s.WhoCan(ctx, s.auditor, keyserver.WhoCanQuery{
		Operation: keyserver.OpHMAC, Link: s.common, After: after, Limit: 100,
	})
	if err == nil && (len(page.Principals) != 100 || page.Next.IsZero()) {
		err = fmt.Errorf("a page of 100 who may came back with %d", len(page.Principals))
	}
	return err
}

func (s *side) page(prefix string, limit, offset int) error {
	page, err := s.ListPrincipals(ctx, s.Admin, keyserver.PrincipalFilter{
		Type: keyserver.LDAPPrincipal, Prefix: prefix, Limit: limit, Offset: offset,
	})
	if err == nil && len(page.Principals) != limit {
		err = fmt.Errorf("a page of %d came back with %d", limit, len(page.Principals))
	}
	return err
}

// BenchmarkListingsStayWindowed runs each request alternately on both sides, so that other load of the machine affects
// both, and compares the medians. It does not report ns/op, because the sum of both sides has no meaning.
func BenchmarkListingsStayWindowed(b *testing.B) {
	for _, database := range []string{"SQLite", "PostgreSQL"} {
		b.Run(database, func(b *testing.B) {
			few, many := newSide(b, database, fewPrincipals, fewKeys), newSide(b, database, manyPrincipals, manyKeys)
			for _, w := range work {
				b.Run(w.name, func(b *testing.B) {
					c := compare(b, few, many, w.do)
					// An excess that the store causes recurs in each attempt; one that the machine causes does not.
					for attempt := 1; attempt < attempts && w.judged && c.ratio() > tolerance; attempt++ {
						c = compare(b, few, many, w.do)
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(float64(c.few), "ns-few")
					b.ReportMetric(float64(c.many), "ns-many")
					b.ReportMetric(c.ratio(), "many/few")
					if w.judged && c.ratio() > tolerance {
						b.Errorf("%s takes %.2f times as long among %d principals and %d keys, at most %.2f is allowed",
							w.name, c.ratio(), manyPrincipals, manyKeys, tolerance)
					}
				})
			}
		})
	}
}

// comparison has the medians of both sides.
type comparison struct{ few, many time.Duration }

func (c comparison) ratio() float64 { return float64(c.many) / float64(c.few) }

func compare(b *testing.B, few, many *side, do func(*side, int) error) comparison {
	var small, large []time.Duration
	for n := range max(b.N, minPairs) {
		if n%2 == 0 {
			small = append(small, timed(b, few, n, do))
			large = append(large, timed(b, many, n, do))
		} else {
			large = append(large, timed(b, many, n, do))
			small = append(small, timed(b, few, n, do))
		}
	}
	return comparison{few: median(small), many: median(large)}
}

func timed(b *testing.B, s *side, n int, do func(*side, int) error) time.Duration {
	began := time.Now()
	err := do(s, n)
	took := time.Since(began)
	rig.Must(b, err)
	return took
}

func median(of []time.Duration) time.Duration {
	of = slices.Clone(of)
	slices.Sort(of)
	return of[len(of)/2]
}
