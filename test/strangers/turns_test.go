package strangers

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// load is a request that a greedy client sends on many connections. On each, it sends the next request after
// the response.
type load struct {
	name  string
	from  sender
	role  keyserver.ID // the zero id for requests without a session
	body  func(t testing.TB, u rig.User) string
	least float64 // share of its rate that an honest client keeps
}

// longRequests use a core for milliseconds.
var longRequests = []load{
	{"pages of the audit log", sender{Connections: 16, Method: "GET", Path: "/api/audit?limit=1000", Status: http.StatusOK}, keyserver.RoleAuditor, func(testing.TB, rig.User) string { return "" }, 0.3},
	{"decisions", sender{Connections: 16, Method: "POST", Path: "/access/v1/evaluations", Status: http.StatusOK}, keyserver.RoleAuditor, func(_ testing.TB, u rig.User) string {
		return fmt.Sprintf(`{"subject":{"type":"principal","id":%q},"resource":{"type":"keyserver","id":"self"},"evaluations":[%s]}`,
			u.ID, repeated(`{"action":{"name":"hmacData"}}`, 64))
	}, 0.3},
	{"batches", sender{Connections: 16, Method: "POST", Path: "/api/crypto/mac/batch", Status: http.StatusOK}, keyserver.RoleEncryptor, func(t testing.TB, u rig.User) string {
		return `{"items":[` + repeated(fmt.Sprintf(`{"lineage":%q,"data":"AAAA"}`, u.Mint(t, nil)), 1000) + `]}`
	}, 0.3},
	{"batches of MACs to verify", sender{Connections: 16, Method: "POST", Path: "/api/crypto/mac/verify/batch", Status: http.StatusOK}, keyserver.RoleEncryptor, func(t testing.TB, u rig.User) string {
		link := u.Mint(t, nil)
		for range keyserver.MaxVerificationKeys - 1 {
			u.Site.OK(t, u.Session, "POST", "/api/keys/rotate", rig.Object{"ttag": link})
		}
		item := fmt.Sprintf(`{"lineage":%q,"mac":%q,"data":"AAAA"}`, link, base64.StdEncoding.EncodeToString(make([]byte, keyserver.MACSize)))
		return `{"items":[` + repeated(item, 1000) + `]}`
	}, 0.3},
	{"batches without an end", sender{Connections: 16, Method: "POST", Path: "/api/crypto/mac/batch", Status: http.StatusBadRequest}, keyserver.RoleEncryptor, func(testing.TB, rig.User) string {
		return `{"items":[` + repeated(`{"lineage":"AAAAAQECAwQFBgcI","data":"AAAA"}`, 20_000)
	}, 0.35},
	{"streamed messages", sender{Connections: 16, Method: "POST", Path: "/api/crypto/hmac", Status: http.StatusOK}, keyserver.RoleEncryptor, func(t testing.TB, u rig.User) string {
		return fmt.Sprintf(`{"hiddenLink":%q,"data":%q}`, u.Mint(t, nil), strings.Repeat("AAAA", 2<<20))
	}, 0.3},
}

// shortRequests use a core for a fraction of a millisecond.
var shortRequests = []load{
	{"HMACs", sender{Connections: 256, Method: "POST", Path: "/api/crypto/hmac", Status: http.StatusOK}, keyserver.RoleEncryptor, func(t testing.TB, u rig.User) string {
		return fmt.Sprintf(`{"hiddenLink":%q,"data":"AAAA"}`, u.Mint(t, nil))
	}, 0.12},
	{"polls of the change feed that do not wait", sender{Connections: 64, Method: "GET", Path: "/api/changes?after=0", Status: http.StatusOK}, keyserver.RoleAuditor,
		func(testing.TB, rig.User) string { return "" }, 0.12},
	{"health without a session", sender{Connections: 64, Method: "GET", Path: "/api/health", Status: http.StatusOK}, keyserver.ID{},
		func(testing.TB, rig.User) string { return "" }, 0.2},
	{"the OpenAPI document without a session", sender{Connections: 64, Method: "GET", Path: "/api/openapi.json", Status: http.StatusOK}, keyserver.ID{},
		func(testing.TB, rig.User) string { return "" }, 0.2},
	{"pipelined requests without a session", sender{Connections: 64, Method: "GET", Path: "/api/health", Packet: 64}, keyserver.ID{},
		func(testing.TB, rig.User) string { return "" }, 0.2},
	{"streams without a session", sender{Connections: 64, Method: "GET", Path: "/api/health", Packet: 100, HTTP2: true}, keyserver.ID{},
		func(testing.TB, rig.User) string { return "" }, 0.2},
	{"connections without a handshake", sender{Connections: 64, Connects: true}, keyserver.ID{}, func(testing.TB, rig.User) string { return "" }, 0.2},
	{"TLS handshakes", sender{Connections: 64, Handshakes: true}, keyserver.ID{}, func(testing.TB, rig.User) string { return "" }, 0.2},
}

func repeated(item string, times int) string {
	return strings.TrimSuffix(strings.Repeat(item+",", times), ",")
}

// begin sends the requests until the returned function is called. That returns the number of responses per
// second.
func (l load) begin(t testing.TB, s *site, u rig.User) (stop func() (perSecond float64)) {
	t.Helper()
	from := l.from
	from.DataDir, from.Address, from.Session, from.Body = s.process.DataDir, s.process.Address, u.Session, l.body(t, u)
	return from.begin(t)
}

// TestLongRequests checks that an honest client keeps its rate while a principal has 16 long requests in
// progress.
func TestLongRequests(t *testing.T) { besideLoads(t, longRequests) }

// TestShortRequests checks the same while a client has many short requests in progress, with or without a
// session.
func TestShortRequests(t *testing.T) { besideLoads(t, shortRequests) }

// TestLoadsAtAnotherReplica checks the same while a principal uses the database through another replica.
func TestLoadsAtAnotherReplica(t *testing.T) {
	for _, one := range append(longRequests[:4:4], shortRequests[0]) {
		t.Run(one.name, func(t *testing.T) {
			first, second := replicas(t)
			one.beside(t, first, second)
		})
	}
	t.Run("batches at both", func(t *testing.T) {
		first, second := replicas(t)
		longRequests[2].beside(t, first, first, second)
	})
}

func besideLoads(t *testing.T, loads []load) {
	for _, one := range loads {
		t.Run(one.name, func(t *testing.T) {
			each(t, func(t *testing.T, s *site) { one.beside(t, s, s) })
		})
	}
}

// beside fails the test unless the honest client of s keeps its rate during the load at each of attacked.
func (l load) beside(t *testing.T, s *site, attacked ...*site) {
	t.Helper()
	var u rig.User
	if l.role != (keyserver.ID{}) {
		u = s.User(t, "greedy", l.role)
	}
	s.works(t, 1000) // rows for the pages
	kept := s.keeps(t, l.least, func() (stop func()) {
		var ends []func() float64
		for _, at := range attacked {
			ends = append(ends, l.begin(t, at, u))
		}
		return func() {
			for _, end := range ends {
				end()
			}
		}
	})
	if kept < l.least {
		t.Errorf("an honest client keeps %.2f of its rate", kept)
	}
}

// TestHandshakesAreCounted checks that the metric counts the TLS handshakes that wait while another client works.
func TestHandshakesAreCounted(t *testing.T) {
	metrics := rig.FreeAddress(t, "127.0.0.1")
	s := start(t, "--metrics-listen", metrics)
	stop := sender{Connections: 64, Handshakes: true, DataDir: s.process.DataDir, Address: s.process.Address}.begin(t)
	defer stop()
	rig.Soon(t, "handshakes are delayed", func() bool {
		s.works(t, 100)
		return rig.Metric(t, metrics, "keyserver_handshakes_delayed_total") > 0
	})
}

// TestFewRequests checks that a principal with many requests keeps its rate while another client sends two
// requests a second. Other programs on the machine disturb the rates, so one successful round of several is
// enough.
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
