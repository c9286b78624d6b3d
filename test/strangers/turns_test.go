package strangers

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// load is a request that a greedy client sends on many connections. On each, it sends the next one after the
// answer.
type load struct {
	name         string
	connections  int
	role         keyserver.ID // the zero id for requests without a session
	method, path string
	body         func(t testing.TB, u rig.User) string
	status       int
	least        float64 // of its rate an honest client keeps
}

// longRequests take a core for milliseconds.
var longRequests = []load{
	{"pages of the audit log", 16, keyserver.RoleAuditor, "GET", "/api/audit?limit=1000", func(testing.TB, rig.User) string { return "" }, http.StatusOK, 0.3},
	{"decisions", 16, keyserver.RoleAuditor, "POST", "/access/v1/evaluations", func(_ testing.TB, u rig.User) string {
		return fmt.Sprintf(`{"subject":{"type":"principal","id":%q},"resource":{"type":"keyserver","id":"self"},"evaluations":[%s]}`,
			u.ID, repeated(`{"action":{"name":"hmacData"}}`, 64))
	}, http.StatusOK, 0.3},
	{"batches", 16, keyserver.RoleEncryptor, "POST", "/api/crypto/mac/batch", func(t testing.TB, u rig.User) string {
		return `{"items":[` + repeated(fmt.Sprintf(`{"lineage":%q,"data":"AAAA"}`, u.Mint(t, nil)), 1000) + `]}`
	}, http.StatusOK, 0.3},
	{"batches without an end", 16, keyserver.RoleEncryptor, "POST", "/api/crypto/mac/batch", func(testing.TB, rig.User) string {
		return `{"items":[` + repeated(`{"lineage":"AAAAAQECAwQFBgcI","data":"AAAA"}`, 20_000)
	}, http.StatusBadRequest, 0.35},
}

// shortRequests take a core for a fraction of a millisecond.
var shortRequests = []load{
	{"HMACs", 256, keyserver.RoleEncryptor, "POST", "/api/crypto/hmac", func(t testing.TB, u rig.User) string {
		return fmt.Sprintf(`{"hiddenLink":%q,"data":"AAAA"}`, u.Mint(t, nil))
	}, http.StatusOK, 0.12},
	{"polls of the change feed that do not wait", 64, keyserver.RoleAuditor, "GET", "/api/changes?after=0",
		func(testing.TB, rig.User) string { return "" }, http.StatusOK, 0.12},
	{"health without a session", 64, keyserver.ID{}, "GET", "/api/health",
		func(testing.TB, rig.User) string { return "" }, http.StatusOK, 0.2},
	{"the OpenAPI document without a session", 64, keyserver.ID{}, "GET", "/api/openapi.json",
		func(testing.TB, rig.User) string { return "" }, http.StatusOK, 0.2},
}

func repeated(item string, times int) string {
	return strings.TrimSuffix(strings.Repeat(item+",", times), ",")
}

// begin sends the requests until the returned function is called, which returns how many were answered per second.
func (l load) begin(t testing.TB, s *site, u rig.User) (stop func() (perSecond float64)) {
	t.Helper()
	return sender{
		Connections: l.connections, DataDir: s.process.DataDir, Address: s.process.Address,
		Method: l.method, Path: l.path, Session: u.Session, Body: l.body(t, u), Status: l.status,
	}.begin(t)
}

// TestLongRequests checks that an honest client keeps its rate next to a principal that has 16 long
// requests under way.
func TestLongRequests(t *testing.T) { besideLoads(t, longRequests) }

// TestShortRequests checks the same next to a client that has many short requests under way, in a session or
// without one.
func TestShortRequests(t *testing.T) { besideLoads(t, shortRequests) }

func besideLoads(t *testing.T, loads []load) {
	for _, one := range loads {
		t.Run(one.name, func(t *testing.T) {
			each(t, func(t *testing.T, s *site) {
				var u rig.User
				if one.role != (keyserver.ID{}) {
					u = s.User(t, "greedy", one.role)
				}
				s.works(t, 1000) // rows for the pages
				kept := s.keeps(t, one.least, func() (stop func()) {
					end := one.begin(t, s, u)
					return func() { end() }
				})
				if kept < one.least {
					t.Errorf("an honest client keeps %.2f of its rate", kept)
				}
			})
		})
	}
}

// TestFewRequests checks that a principal with many requests keeps its rate next to a client that sends two
// requests a second. Other programs on the machine disturb the rates, so one round of several is enough.
func TestFewRequests(t *testing.T) {
	const least, rounds = 0.6, 5
	each(t, func(t *testing.T, s *site) {
		l := shortRequests[0]
		u := s.User(t, "greedy", l.role)
		best := 0.0
		for round := 0; round < rounds && best < least; round++ {
			stop := l.begin(t, s, u)
			time.Sleep(2 * time.Second)
			alone := stop()
			stop = l.begin(t, s, u)
			for range 4 {
				s.works(t, 1)
				time.Sleep(time.Second / 2)
			}
			best = max(best, stop()/alone)
		}
		if best < least {
			t.Errorf("the principal keeps %.2f of its rate", best)
		}
	})
}
