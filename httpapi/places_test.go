package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/hmacbody"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/clientaddr"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

func principal(n uint64) keyserver.PrincipalRef {
	return keyserver.PrincipalRef{System: 1, ID: values.IDFromUint64(n)}
}

// ann is the principal of the fixture's session.
var ann = principal(9001)

// take takes n places or bytes for each of several other principals; others is their number.
func take(t *testing.T, from *quota.Quota[keyserver.PrincipalRef], others int, n int64) {
	t.Helper()
	for i := range others {
		if from.Take(principal(uint64(i)), n) != quota.Taken {
			t.Fatalf("principal %d gets nothing", i)
		}
	}
}

func TestAPrincipalHoldsAQuarterOfACeiling(t *testing.T) {
	ceilings := func(c *Config) { c.MaxInFlight, c.MaxWaiting, c.MaxStreams = 8, 8, 8 }
	for name, c := range map[string]struct {
		of     func(*places) *quota.Quota[keyserver.PrincipalRef]
		choose func(routes.Route) bool
	}{
		"AtWork":  {func(p *places) *quota.Quota[keyserver.PrincipalRef] { return p.inFlight }, func(r routes.Route) bool { return r.Path == "/api/roles" && r.Method == http.MethodGet }},
		"Waiting": {func(p *places) *quota.Quota[keyserver.PrincipalRef] { return p.waiting }, func(r routes.Route) bool { return r.Waits }},
		"Streams": {func(p *places) *quota.Quota[keyserver.PrincipalRef] { return p.streams }, func(r routes.Route) bool { return r.Streams }},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, ceilings)
			of := c.of(f.api.places)
			all := routes.All()
			r := all[slices.IndexFunc(all, c.choose)]
			good := sampleOf(r)
			send := func() *httptest.ResponseRecorder { return f.do(r.Method, good.target(r), good.text()) }
			if w := send(); w.Code != http.StatusOK || of.Held() != 0 {
				t.Fatalf("alone: %d %s, %d places held", w.Code, w.Body, of.Held())
			}
			of.Take(ann, 2)
			w := send()
			if e := errorOf(t, w); e.Code != string(fault.Overloaded) || e.Scope != string(fault.ScopeSession) || w.Header().Get("Retry-After") == "" {
				t.Errorf("beside two of its own: %d %s", w.Code, w.Body)
			}
			of.Return(ann, 2)
			take(t, of, 3, 2)
			if w := send(); w.Code != http.StatusOK {
				t.Errorf("beside three other principals: %d %s", w.Code, w.Body)
			}
			of.Take(principal(3), 2)
			w = send()
			if e := errorOf(t, w); e.Code != string(fault.Overloaded) || e.Scope != string(fault.ScopeProcess) {
				t.Errorf("beside four other principals: %d %s", w.Code, w.Body)
			}
		})
	}
}

// An administrator can end sessions and disable principals while other principals use all places.
func TestAdministrationHasAReserve(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MaxInFlight = 8 })
	take(t, f.api.places.inFlight, quota.Shares, 2)
	for _, r := range routes.All() {
		if !r.Session || r.Uncounted || r.Waits || r.Streams {
			continue
		}
		good := sampleOf(r)
		w := f.do(r.Method, good.target(r), good.text())
		refused := strings.Contains(w.Body.String(), `"`+string(fault.Overloaded)+`"`)
		own := r.Name == "getCurrentSession"
		if reserved := (r.Tag == "Sessions" || r.Tag == "Principals") && !own || r.Executes; refused == reserved {
			t.Errorf("%s %s of %q: %d %s", r.Method, r.Path, r.Tag, w.Code, w.Body)
		}
	}
	if held := f.api.places.administration.Held(); held != 0 {
		t.Errorf("%d places of the reserve are still held", held)
	}
}

// TestConnectionsHaveAShare checks that a principal uses at most a quarter of all connections at the same time.
func TestConnectionsHaveAShare(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MaxConnections = 8 })
	f.api.places.underWay.Take(ann, 1)
	if w := f.do(http.MethodGet, "/api/roles", ""); w.Code != http.StatusOK {
		t.Errorf("beside one of its own: %d %s", w.Code, w.Body)
	}
	f.api.places.underWay.Take(ann, 1)
	w := f.do(http.MethodGet, "/api/sessions/current", "")
	if e := errorOf(t, w); e.Code != string(fault.Overloaded) || e.Scope != string(fault.ScopeSession) || w.Header().Get("Connection") != "close" {
		t.Errorf("beside two of its own: %d %s %v", w.Code, w.Body, w.Header())
	}
	f.api.places.underWay.Return(ann, 2)
	take(t, f.api.places.underWay, 2, 2)
	if w := f.do(http.MethodGet, "/api/roles", ""); w.Code != http.StatusOK {
		t.Errorf("beside two other principals: %d %s", w.Code, w.Body)
	}
	f.api.places.underWay.Take(principal(2), 2)
	w = f.do(http.MethodGet, "/api/roles", "")
	if e := errorOf(t, w); e.Code != string(fault.Overloaded) || e.Scope != string(fault.ScopeProcess) {
		t.Errorf("beside three other principals, which leave a quarter to newcomers: %d %s", w.Code, w.Body)
	}
	if held := f.api.places.underWay.Held(); held != 6 {
		t.Errorf("%d are counted", held)
	}
}

// TestWhoWasRefusedTooMuchIsHeld checks that a request of a principal with too many refusals is delayed. It is rejected
// if there are still too many after the delay. The request takes no place and calls no operation.
func TestWhoWasRefusedTooMuchIsHeld(t *testing.T) {
	off := fault.Temporary(fault.Overloaded, fault.ScopeSession, time.Millisecond, "refused too much")
	var answers []error
	f := newFixture(t, func(c *Config) {
		c.Restrain = func(by keyserver.Caller) error {
			if by.Principal != ann {
				t.Errorf("%v is asked about", by.Principal)
			}
			err := answers[0]
			answers = answers[1:]
			return err
		}
	})
	for _, c := range []struct {
		answers []error
		status  int
	}{
		{[]error{nil}, http.StatusOK},
		{[]error{off, nil}, http.StatusOK},
		{[]error{off, off}, http.StatusServiceUnavailable},
	} {
		answers = c.answers
		w := f.do(http.MethodGet, "/api/roles", "")
		if w.Code != c.status || len(answers) != 0 {
			t.Errorf("%v: %d %s, %d questions were not asked", c.answers, w.Code, w.Body, len(answers))
		}
	}
	if held := f.api.places.inFlight.Held() + f.api.places.underWay.Held(); held != 0 {
		t.Errorf("%d places are held", held)
	}
}

// A delegated session counts for the principal that acts, not for its delegator.
func TestTheActingPrincipalPays(t *testing.T) {
	x := &exchange{call: call{by: keyserver.Caller{Principal: principal(1), Actor: principal(2)}}}
	if got := x.payer(); got != principal(2) {
		t.Errorf("%v pays", got)
	}
}

// watched calls write while a response is written.
type watched struct {
	*httptest.ResponseRecorder
	write func()
}

func (w *watched) Write(b []byte) (int, error) {
	w.write()
	return w.ResponseRecorder.Write(b)
}

func TestThePlaceIsFreeBeforeTheAnswerIsWritten(t *testing.T) {
	f := newFixture(t)
	held := int64(-1)
	w := &watched{httptest.NewRecorder(), func() { held = f.api.places.inFlight.Held() }}
	f.api.ServeHTTP(w, request(http.MethodGet, "/api/roles", ""))
	if w.Code != http.StatusOK || held != 0 {
		t.Errorf("answered %d, with %d places held", w.Code, held)
	}
}

// TestLongBodiesOfWhoMayNotSendThem checks that only the beginning of a long body is read if no role grants the
// operation.
func TestLongBodiesOfWhoMayNotSendThem(t *testing.T) {
	tried := 0
	for _, route := range routes.All() {
		if route.BodyLimit <= routes.SmallBody || route.Streams || len(route.Operations) == 0 {
			continue
		}
		tried++
		f := newFixture(t)
		f.ops.err = fault.New(fault.AccessDenied, "no role")
		body := strings.NewReader(strings.Repeat(" ", 1<<20))
		r := httptest.NewRequest(route.Method, sampleOf(route).target(route), body)
		r.Header.Set("Authorization", "Bearer "+testToken)
		if w := f.send(r); w.Code != http.StatusForbidden {
			t.Errorf("%s: %d %s", route.Name, w.Code, w.Body)
		}
		if read := 1<<20 - body.Len(); read > 4*routes.SmallBody {
			t.Errorf("%s: %d bytes were read", route.Name, read)
		}
	}
	if tried < 2 {
		t.Errorf("%d routes were tried", tried)
	}
}

func TestLongBodiesHaveAShare(t *testing.T) {
	route := func() routes.Route {
		for _, r := range routes.All() {
			if r.Name == "macBatch" || r.BodyLimit > routes.SmallBody && !r.Streams && r.Session {
				return r
			}
		}
		t.Fatal("no route takes a long body")
		return routes.Route{}
	}()
	long := strings.Repeat(" ", 3*routes.SmallBody) + sampleOf(route).text()
	f := newFixture(t)
	f.api.places.bodies.Take(ann, maxBodyBytes/quota.Shares-routes.SmallBody)
	w := f.do(route.Method, sampleOf(route).target(route), long)
	if e := errorOf(t, w); e.Code != string(fault.Overloaded) || !strings.HasPrefix(e.Detail, "body: ") {
		t.Errorf("beyond the share: %d %s", w.Code, w.Body)
	}
	f.api.places.bodies.Return(ann, maxBodyBytes/quota.Shares-routes.SmallBody)
	if w := f.do(route.Method, sampleOf(route).target(route), long); w.Code != http.StatusOK {
		t.Errorf("within it: %d %s", w.Code, w.Body)
	}
	if held := f.api.places.bodies.Held(); held != 0 {
		t.Errorf("%d bytes are still held", held)
	}
}

func TestUnreadAnswersHaveAShare(t *testing.T) {
	f := newFixture(t)
	x := &exchange{api: f.api, call: call{by: keyserver.Caller{Principal: ann}}}
	f.api.places.unread.Take(ann, maxUnreadBytes/quota.Shares-3*routes.SmallBody)
	x.holdUnread(0) // a response without a body takes memory, too
	x.leave()
	f.api.places.unread.Take(ann, 2*routes.SmallBody)
	func() {
		defer func() {
			if err, ok := recover().(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				t.Error("the connection is not closed")
			}
		}()
		x.holdUnread(2 * routes.SmallBody)
	}()
	f.api.places.unread.Return(ann, 2*routes.SmallBody)
	x.holdUnread(2 * routes.SmallBody)
	x.leave()
	if held := f.api.places.unread.Held(); held != maxUnreadBytes/quota.Shares-3*routes.SmallBody {
		t.Errorf("%d bytes are held", held)
	}
}

// A new request without a session evicts the oldest such request of the network that has most places.
func TestStrangersGiveWay(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MaxStrangers, c.MaxStrangersPerAddress = 6, 3 })
	evicted := f.strangers(t, "192.0.2.1/32", "192.0.2.2/32")
	for range 3 {
		r := request(http.MethodPost, "/api/sessions", "{}")
		r.RemoteAddr = "192.0.2.3:1"
		if w := f.send(r); w.Code == http.StatusServiceUnavailable {
			t.Errorf("a login: %d %s", w.Code, w.Body)
		}
	}
	if len(*evicted) != 1 || (*evicted)[0] != "192.0.2.1/32 0" {
		t.Errorf("evicted: %v; want the oldest one, once, because each answer gives its place back", *evicted)
	}
}

// TestUnknownSessionsAreStrangers checks that a request uses a place for requests without a session only while its
// session is read from the database.
func TestUnknownSessionsAreStrangers(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MaxStrangers, c.MaxStrangersPerAddress = 6, 3 })
	reads := 0
	f.sessions.read = func() {
		reads++
		if held := f.api.places.strangers.Held(); held != 1 {
			t.Errorf("%d places are held during the read, want 1", held)
		}
	}
	f.ops.during = func(context.Context) {
		if held := f.api.places.strangers.Held(); held != 0 {
			t.Errorf("%d places are held during the work", held)
		}
	}
	if w := f.do(http.MethodGet, "/api/roles", ""); w.Code != http.StatusOK {
		t.Errorf("a session: %d %s", w.Code, w.Body)
	}
	f.sessions.err = fault.New(fault.SessionNotFound, "no such session")
	if w := f.do(http.MethodGet, "/api/roles", ""); w.Code != http.StatusUnauthorized {
		t.Errorf("no session: %d %s", w.Code, w.Body)
	}
	if held := f.api.places.strangers.Held(); held != 0 || reads != 2 {
		t.Errorf("%d places are held after %d reads", held, reads)
	}
	f.strangers(t, "192.0.2.1/32") // this is the address of the requests
	w := f.do(http.MethodGet, "/api/roles", "")
	if e := errorOf(t, w); e.Code != string(fault.Overloaded) || w.Header().Get("Retry-After") == "" || reads != 2 {
		t.Errorf("beyond the places of its address: %d %s, %d reads", w.Code, w.Body, reads)
	}
	if held := f.api.places.refused.Held(); held != 0 {
		t.Errorf("%d refusals are held", held)
	}
}

// TestRefusedStrangersWait checks that the refusal of a request without a session is delayed by its Retry-After, unless
// the client disconnects or the key server stops.
func TestRefusedStrangersWait(t *testing.T) {
	for name, c := range map[string]struct {
		begin func(f *fixture, hangUp func())
		waits time.Duration
	}{
		"a client that waits":  {func(*fixture, func()) {}, refusalPause},
		"one that goes away":   {func(_ *fixture, hangUp func()) { hangUp() }, 0},
		"a service that stops": {func(f *fixture, _ func()) { f.api.Drain() }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, func(c *Config) { c.MaxStrangers, c.MaxStrangersPerAddress = 6, 3 })
				f.strangers(t, "192.0.2.1/32") // this is the address of the requests
				ctx, hangUp := context.WithCancel(t.Context())
				defer hangUp()
				begun, answer := time.Now(), make(chan *httptest.ResponseRecorder, 1)
				go func() { answer <- f.send(request(http.MethodPost, "/api/sessions", "{}").WithContext(ctx)) }()
				synctest.Wait()
				if held := f.api.places.refused.Held(); held != 1 {
					t.Errorf("%d refusals wait", held)
				}
				c.begin(f, hangUp)
				w := <-answer
				if took := time.Since(begun); took != c.waits {
					t.Errorf("answered after %s, want %s", took, c.waits)
				}
				if e := errorOf(t, w); e.Code != string(fault.Overloaded) || w.Header().Get("Retry-After") != "1" {
					t.Errorf("answered %d %s", w.Code, w.Body)
				}
			})
		})
	}
}

// TestDroppedRequestsSlowTheirClient checks that a client whose requests were dropped cannot send more requests at
// once, unless its requests come over a proxy.
func TestDroppedRequestsSlowTheirClient(t *testing.T) {
	proxies, err := clientaddr.ParseProxies([]string{"198.51.100.1"})
	rig.Must(t, err)
	for name, c := range map[string]struct {
		from    string
		major   int
		client  string        // the address that a proxy reports; optional
		dropped int           // number of requests that were dropped before this one
		delays  time.Duration // of the connection
		waits   time.Duration
	}{
		"HTTP/1.1":                              {"192.0.2.1:1", 1, "", 0, -1, refusalPause},
		"HTTP/1.1 over a proxy":                 {"198.51.100.1:1", 1, "192.0.2.1", 0, -1, 0},
		"HTTP/2":                                {"192.0.2.1:1", 2, "", dropsPerSecond - 1, -1, 0},
		"HTTP/2, too many":                      {"192.0.2.1:1", 2, "", dropsPerSecond, refusalPause, 0},
		"HTTP/2 over a proxy":                   {"198.51.100.1:1", 2, "192.0.2.1", dropsPerSecond, -1, 0},
		"HTTP/2 over a proxy that names itself": {"198.51.100.1:1", 2, "198.51.100.1", dropsPerSecond, -1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				delayed := time.Duration(-1)
				f := newFixture(t, func(conf *Config) {
					conf.MaxStrangers, conf.MaxStrangersPerAddress, conf.Proxies = 6, 3, proxies
					conf.Delay = func(_ context.Context, d time.Duration) { delayed = d }
				})
				for _, network := range []string{"192.0.2.1/32", "198.51.100.1/32"} {
					f.strangers(t, network)
					f.api.places.refused.Take(netip.MustParsePrefix(network), 3)
				}
				f.api.places.dropped.AllowN(time.Now(), c.dropped)
				r := request(http.MethodPost, "/api/sessions", "{}")
				r.RemoteAddr, r.ProtoMajor = c.from, c.major
				if c.client != "" {
					r.Header.Set("X-Forwarded-For", c.client)
				}
				begun := time.Now()
				func() {
					defer func() {
						if recover() != http.ErrAbortHandler { //nolint:errorlint // a sentinel that net/http compares like this
							t.Error("the request is not dropped")
						}
					}()
					f.send(r)
				}()
				if took := time.Since(begun); took != c.waits || delayed != c.delays {
					t.Errorf("it waits for %s and delays the connection for %s, want %s and %s", took, delayed, c.waits, c.delays)
				}
			})
		})
	}
}

// strangers takes, for each network, three places for requests without a session. It returns the evicted ones.
func (f *fixture) strangers(t *testing.T, networks ...string) *[]string {
	t.Helper()
	evicted := &[]string{}
	for _, network := range networks {
		for j := range 3 {
			name := fmt.Sprint(network, " ", j)
			if _, got := f.api.places.strangers.Join(netip.MustParsePrefix(network), func() { *evicted = append(*evicted, name) }); got != quota.Taken {
				t.Fatal(got)
			}
		}
	}
	return evicted
}

// TestHealthIsAnsweredBesideStrangers checks that a request for health gets a response, and evicts no request, while
// all places for requests without a session are taken.
func TestHealthIsAnsweredBesideStrangers(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MaxStrangers, c.MaxStrangersPerAddress = 6, 3 })
	evicted := f.strangers(t, "192.0.2.1/32", "192.0.2.2/32")
	for _, from := range []string{"192.0.2.1:1", "192.0.2.3:1"} {
		for _, path := range []string{"/api/health", "/api/ready", "/api/openapi.json", "/nothing"} {
			r := request(http.MethodGet, path, "")
			r.RemoteAddr = from
			if w := f.send(r); w.Code == http.StatusServiceUnavailable {
				t.Errorf("%s from %s: %d %s", path, from, w.Code, w.Body)
			}
		}
	}
	if len(*evicted) != 0 {
		t.Errorf("evicted: %v", *evicted)
	}
}

// An evicted request ends, because the server closes its connection.
func TestAStrangerThatGivesWayEnds(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MaxStrangers, c.MaxStrangersPerAddress = 1, 1 })
	s := httptest.NewServer(f.api)
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("POST /api/sessions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")); err != nil {
		t.Fatal(err)
	}
	for f.api.places.strangers.Held() == 0 {
		time.Sleep(time.Millisecond)
	}
	r := request(http.MethodPost, "/api/sessions", "{}")
	r.RemoteAddr = "192.0.2.3:1"
	if w := f.send(r); w.Code == http.StatusServiceUnavailable {
		t.Errorf("a login: %d %s", w.Code, w.Body)
	}
	if text, err := io.ReadAll(conn); err != nil || len(text) > 0 {
		t.Errorf("it is answered %q, %v", text, err)
	}
}

// All sessions of one principal together may use at most a quarter of the bytes for stored messages.
func TestMessagesPutAsideHaveAShare(t *testing.T) {
	f := newFixture(t)
	var spools []hmacbody.Spool
	for i := range quota.Shares + 1 {
		x := &exchange{api: f.api, call: call{by: keyserver.Caller{Principal: ann, Session: keyserver.ID{byte(i + 1)}}}}
		spools = append(spools, x.spool())
	}
	const each = DefaultMaxSpoolBytesPerSession
	for i, s := range spools {
		err := s.Take(each)
		if i < DefaultMaxSpoolBytes/quota.Shares/each {
			if err != nil {
				t.Fatal(err)
			}
			continue
		}
		if e := fault.As(err); e == nil || e.Code != fault.Overloaded || e.Scope != fault.ScopeSession {
			t.Errorf("session %d: %v", i, err)
		}
	}
	spools[0].Return(each)
	if err := spools[quota.Shares].Take(each); err != nil {
		t.Errorf("after some were given back: %v", err)
	}
	if held := f.api.places.spool.Held(); held != DefaultMaxSpoolBytes/quota.Shares {
		t.Errorf("%d bytes are held", held)
	}
}
