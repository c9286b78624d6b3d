package strangers

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// insider is an attack by a principal with a session. It lasts until stop is called.
type insider struct {
	name  string
	roles []keyserver.ID
	begin func(t testing.TB, s *site, u rig.User) (stop func())
	// grows is the limit for the additional memory of the process during the attack, in bytes.
	grows int64
}

var insiders = []insider{
	{"answers that nobody reads", nil, unreadAnswers, 128 << 20},
	{"bodies without a right to send them", nil, func(t testing.TB, s *site, u rig.User) func() {
		return almost(t, s, u, "/api/revocation/crls")
	}, 100 << 20},
	{"bodies that do not end", []keyserver.ID{keyserver.RoleEncryptor}, func(t testing.TB, s *site, u rig.User) func() {
		return almost(t, s, u, "/api/crypto/mac/batch")
	}, 192 << 20},
	{"bodies that do not begin", []keyserver.ID{keyserver.RoleEncryptor}, func(t testing.TB, s *site, u rig.User) func() {
		return many(t, s, 1<<16, "POST", "/api/crypto/hmac", []byte("{"), false, u.Session)
	}, 128 << 20},
	{"long polls", []keyserver.ID{keyserver.RoleAuditor}, func(t testing.TB, s *site, u rig.User) func() {
		return many(t, s, 1<<16, "GET", "/api/changes?wait=60&after="+s.cursor(t), nil, true, u.Session)
	}, 128 << 20},
}

// TestInsiders checks that, during each attack, other clients get responses, a new client can log in,
// and an administrator can end the sessions of the attacker.
func TestInsiders(t *testing.T) {
	for _, one := range insiders {
		t.Run(one.name, func(t *testing.T) {
			s := start(t)
			u := s.User(t, "greedy", one.roles...)
			s.works(t, 100)
			before := s.memory(t)
			kept := s.keeps(t, 0.7, func() (stop func()) { return one.begin(t, s, u) })
			if kept < 0.4 {
				t.Errorf("an honest client keeps %.2f of its rate", kept)
			}
			stop := one.begin(t, s, u)
			defer stop()
			if grown := s.memory(t) - before; grown > one.grows {
				t.Errorf("%d MiB are held, more than %d", grown>>20, one.grows>>20)
			}
			s.serves(t, u)
		})
	}
}

// serves fails the test unless clients other than u get responses, and an administrator can end the sessions of u and
// disable u.
func (s *site) serves(t *testing.T, u rig.User) {
	t.Helper()
	s.works(t, 20)
	for _, path := range []string{"/api/health", "/api/ready", "/api/openapi.json"} {
		s.OK(t, "", "GET", path, nil)
	}
	s.LogIn(t, "honest", rig.Password)
	admin := s.AsAdmin(t)
	s.OK(t, admin, "GET", "/api/changes?wait=1&after="+s.cursor(t), nil)
	s.OK(t, admin, "DELETE", "/api/principals/"+u.ID+"/sessions", nil)
	s.OK(t, admin, "PUT", "/api/principals/"+u.ID+"/flags", rig.Object{"disabled": true})
	s.Refused(t, u.Session, "GET", "/api/sessions/current", nil, http.StatusUnauthorized, "SESSION_NOT_FOUND")
}

// cursor returns the end of the change feed.
func (s *site) cursor(t testing.TB) string {
	t.Helper()
	_, cursor := s.Changes(t, s.AsAdmin(t), "0")
	return cursor
}

// many sends 1,200 requests on ten connections. window is the flow-control window of each stream, in
// bytes.
func many(t testing.TB, s *site, window uint32, method, path string, body []byte, complete bool, sessions ...string) (stop func()) {
	t.Helper()
	var attackers []*attacker
	for i := range 10 {
		a := connect(t, s, window)
		attackers = append(attackers, a)
		for range 120 {
			if _, err := a.ask(method, path, body, complete, "authorization", "Bearer "+sessions[i%len(sessions)], "content-type", "application/json"); err != nil {
				break // the server closed the connection
			}
		}
		a.arrived()
	}
	return func() {
		for _, a := range attackers {
			_ = a.raw.Close()
		}
	}
}

// unreadAnswers leaves the responses unread in a session and in four scoped sessions of the principal.
func unreadAnswers(t testing.TB, s *site, u rig.User) (stop func()) {
	t.Helper()
	sessions := []string{u.Session}
	for range 4 {
		a := s.OK(t, u.Session, "POST", "/api/sessions", rig.Object{"method": "scoped", "objects": []string{"AAAAAQECAwQFBgcI"}})
		sessions = append(sessions, a.Text(t, "sessionId"))
	}
	question := fmt.Sprintf(`{"subject":{"type":"principal","id":%q},"resource":{"type":"keyserver","id":"self"},"evaluations":[%s]}`,
		u.ID, strings.TrimSuffix(strings.Repeat(`{"action":{"name":"hmacData"}},`, 64), ","))
	return many(t, s, 0, "POST", "/access/v1/evaluations", []byte(question), true, sessions...)
}

// almost sends 100 bodies of 5 MB without their last byte.
func almost(t testing.TB, s *site, u rig.User, path string) (stop func()) {
	t.Helper()
	const length = 5_000_000
	head := strings.Replace(announced(path, length), "\r\n\r\n", "\r\nAuthorization: Bearer "+u.Session+"\r\n\r\n", 1)
	ctx, cancel := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	for range 100 {
		conn := slowly(t, s, head)
		if conn == nil {
			break
		}
		_ = conn.SetWriteDeadline(time.Now().Add(patience))
		sending.Go(func() { _, _ = conn.Write(make([]byte, length-1)) })
		context.AfterFunc(ctx, func() { _ = conn.Close() })
	}
	return func() { cancel(); sending.Wait() }
}

// TestConnectionsThatStayBusy checks that the server accepts new connections although one principal leaves small
// responses unread, and clients without a session leave requests open on all connections.
func TestConnectionsThatStayBusy(t *testing.T) {
	const most = 60
	s := start(t, "--max-connections", fmt.Sprint(most))
	u := s.User(t, "greedy")
	for i := range 2 * most {
		a := connectFrom(t, s, net.IPv4(127, 1, 0, byte(i%5+1)), 0)
		for range 10 {
			_, _ = a.ask("GET", "/api/sessions/current", nil, true, "authorization", "Bearer "+u.Session)
			_, _ = a.ask("POST", "/api/sessions", []byte("{"), false)
		}
		a.arrived()
	}
	s.HTTP.CloseIdleConnections() // an honest client needs a new connection
	s.serves(t, u)
}

// TestSessionsOfOnePrincipal checks that one principal gets at most a quarter of all sessions.
func TestSessionsOfOnePrincipal(t *testing.T) {
	const most = 40
	each(t, func(t *testing.T, s *site) {
		u := s.User(t, "greedy")
		opened := 1
		for ; opened <= most; opened++ {
			a := s.Send(t, "", "POST", "/api/sessions", rig.Object{"method": "password", "name": "greedy", "password": rig.Password})
			if a.Code() == "SESSION_LIMIT" {
				break
			}
		}
		if opened != most/4 {
			t.Errorf("one principal has %d of %d sessions", opened, most)
		}
		s.serves(t, u)
	}, "--max-sessions", fmt.Sprint(most))
}

// TestBatchesThatAreRefused checks that an honest client keeps its rate while a principal sends batches of refused
// items. After a while the server rejects the batches.
func TestBatchesThatAreRefused(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		greedy := s.User(t, "greedy", keyserver.RoleEncryptor)
		var decided, putOff atomic.Int64
		kept := s.keeps(t, 0.5, func() (stop func()) { return refusedBatches(t, s, greedy, &decided, &putOff) })
		if kept < 0.3 {
			t.Errorf("an honest client keeps %.2f of its rate", kept)
		}
		if decided.Load() == 0 || putOff.Load() == 0 {
			t.Errorf("%d batches were decided and %d put off", decided.Load(), putOff.Load())
		}
	})
}

// refusedBatches sends batches of 1,000 refused items, two batches at a time.
func refusedBatches(t testing.TB, s *site, u rig.User, decided, putOff *atomic.Int64) (stop func()) {
	t.Helper()
	items := make([]rig.Object, 1000)
	for i := range items {
		items[i] = rig.Object{"lineage": s.link, "data": "AAAA"}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var going sync.WaitGroup
	for range 2 {
		going.Go(func() {
			for ctx.Err() == nil {
				a, err := s.Try(ctx, rig.Request{Session: u.Session, Method: "POST", Path: "/api/crypto/mac/batch", Body: rig.Object{"items": items}})
				switch {
				case err != nil:
				case a.Status == http.StatusOK:
					decided.Add(1)
				case a.Code() == "OVERLOADED":
					putOff.Add(1)
				default:
					t.Errorf("a batch: %s", a.Brief())
				}
			}
		})
	}
	return func() { cancel(); going.Wait() }
}
