package federation

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/federation/impostor"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// clock is the clock of a key server. It may be ahead of this machine's clock, but never behind, because the deadlines
// of connections use this machine's time.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *clock) turn(by time.Duration) { c.ahead.Add(int64(by)) }

// apart gives the two key servers of between different clocks.
func apart(ofA, ofB *clock) testserver.Option {
	return func(c *server.Config) {
		c.Clock = map[uint32]*clock{2: ofA, 3: ofB}[c.SystemID].now
	}
}

// ahead returns a clock that is ahead of this machine's.
func ahead(by time.Duration) *clock {
	c := &clock{}
	c.turn(by)
	return c
}

// apartBy is almost the maximum tolerated difference of clocks.
const apartBy = 4 * time.Minute

// skewed runs a test twice on two key servers with different clocks. Each server is ahead once.
func skewed(t *testing.T, test func(t *testing.T, a, b *site)) {
	t.Helper()
	t.Run("Ahead", func(t *testing.T) { between(t, test, apart(ahead(apartBy), ahead(0))) })
	t.Run("Behind", func(t *testing.T) { between(t, test, apart(ahead(0), ahead(apartBy))) })
}

// Key servers whose clocks differ by four minutes, in either direction, forward all operations to each other. No time
// limit compares the times of two clocks: all limits are far shorter than the difference.
func TestForwardingBetweenClocksThatDiffer(t *testing.T) {
	skewed(t, func(t *testing.T, a, b *site) {
		material := []byte("the key that stays at home")
		owner := b.User(t, "owner", keyserver.RoleEncryptor)
		caller := a.agent(t, "caller", keyserver.RoleEncryptor)
		guest := a.User(t, "guest")
		a.Expose(t, caller.ID, b.Site)
		ttag := owner.Mint(t, material)
		owner.Grant(t, ttag, caller, "OWNER")
		ask := rig.Object{"ttag": ttag}
		granted := caller.Site.OK(t, caller.Session, "POST", "/api/keys/authorize", ask)
		for _, length := range []int{64, 300_000} {
			message := make([]byte, length)
			if out := caller.Site.OK(t, caller.Session, "POST", "/api/crypto/hmac", hmacOf(ttag, message)); out.Field("mac") != macOf(material, message) {
				t.Errorf("%d bytes: %s is not the HMAC", length, out.Field("mac"))
			}
		}
		caller.Site.OK(t, caller.Session, "POST", "/api/keys/get", ask)
		caller.Site.OK(t, caller.Session, "POST", "/api/keys/acl/get", ask)
		change := rig.Object{"ttag": ttag, "systemId": a.System, "principalId": guest.Decimal, "rights": []string{"READ"}}
		caller.Site.OK(t, caller.Session, "POST", "/api/keys/acl/grant", change)
		caller.Site.OK(t, caller.Session, "POST", "/api/keys/acl/update", change)
		delete(change, "rights")
		caller.Site.OK(t, caller.Session, "POST", "/api/keys/acl/revoke", change)
		if found := caller.Site.OK(t, caller.Session, "POST", "/api/principals/lookup", rig.Object{"principals": []rig.Object{pair(owner)}}).List(t, "principals"); len(found) != 1 {
			t.Errorf("found %v", found)
		}
		// Each key server uses its own clock for its rows.
		here, there := a.timeOf(t, granted.RequestID), b.timeOf(t, granted.RequestID)
		if here.After(there) != a.clock().After(b.clock()) {
			t.Errorf("asked at %s, done at %s", here, there)
		}
	})
}

// timeOf returns the time of the first row of a request.
func (s *site) timeOf(t testing.TB, requestID string) time.Time {
	t.Helper()
	rows := s.Rows(t, requestID)
	if len(rows) == 0 {
		t.Fatalf("%d has no row of the request %s", s.System, requestID)
	}
	text, _ := rows[0]["time"].(string)
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// The clock of the key's owner decides when an entry begins and ends, not the caller's clock.
func TestEntriesGoByTheOwnersClock(t *testing.T) {
	skewed(t, func(t *testing.T, a, b *site) {
		owner := b.User(t, "owner", keyserver.RoleEncryptor)
		caller := a.User(t, "caller", keyserver.RoleExchanger)
		a.Expose(t, caller.ID, b.Site)
		for _, tc := range []struct {
			field string
			from  time.Duration // relative to the owner's time
			open  bool
		}{
			{"startTime", -apartBy / 2, true},
			{"startTime", apartBy / 2, false},
			{"endTime", apartBy / 2, true},
			{"endTime", -apartBy / 2, false},
		} {
			ttag := owner.Mint(t, nil)
			stamp := values.StampOf(b.clock().Add(tc.from))
			b.OK(t, owner.Session, "POST", "/api/keys/acl/grant", rig.Object{
				"ttag": ttag, "systemId": a.System, "principalId": caller.Decimal, "rights": []string{"READ"},
				tc.field: base64.StdEncoding.EncodeToString(stamp[:]),
			})
			if tc.open {
				caller.Site.OK(t, caller.Session, "POST", "/api/keys/authorize", rig.Object{"ttag": ttag})
			} else {
				a.Refused(t, caller.Session, "POST", "/api/keys/authorize", rig.Object{"ttag": ttag}, http.StatusForbidden, "ACL_DENIED")
			}
		}
	})
}

// asking registers two key servers with each other, and lets a principal of a use a key of b. Each call of the returned
// function sends a new request.
func asking(t *testing.T, a, b *site) func() rig.Answer {
	t.Helper()
	a.register(t, b)
	b.register(t, a)
	owner := b.User(t, "owner", keyserver.RoleEncryptor)
	caller := a.User(t, "caller", keyserver.RoleExchanger)
	a.Expose(t, caller.ID, b.Site)
	ttag := owner.Mint(t, nil)
	owner.Grant(t, ttag, caller, "READ")
	return func() rig.Answer {
		return a.Send(t, caller.Session, "POST", "/api/keys/authorize", rig.Object{"ttag": ttag})
	}
}

// The key server that opened a session checks its age. The owner of the key does not, and gets no request of an expired
// session.
func TestSessionsGoByTheirKeyServersClock(t *testing.T) {
	for name, database := range databases {
		t.Run(name, func(t *testing.T) {
			ofA, ofB := ahead(0), ahead(0)
			a, b := open(t, 2, apart(ofA, ofB), database(t)), open(t, 3, apart(ofA, ofB), database(t))
			ask := asking(t, a, b)

			// After a jump of its clock a key server is unsure whether it is current, and reads the database first.
			ofB.turn(30 * 24 * time.Hour)
			rig.Within(t, prompt, "the owner is sure of its state", func() bool { return ask().Status == http.StatusOK })
			ofA.turn(30 * 24 * time.Hour)
			var out rig.Answer
			rig.Within(t, prompt, "the session is over", func() bool { out = ask(); return out.Status == http.StatusUnauthorized })
			b.DropSessions() // the session of admin has also expired
			if rows := b.Rows(t, out.RequestID); len(rows) != 0 {
				t.Errorf("the owner was asked: %s", rig.FormatRows(rows))
			}
		})
	}
}

// The clock of the key's owner decides how long a repeated call is recognized. The caller sends no time.
func TestRepetitionsGoByTheOwnersClock(t *testing.T) {
	for name, database := range databases {
		t.Run(name, func(t *testing.T) {
			ofB := ahead(0)
			b := open(t, 3, func(c *server.Config) { c.Clock = ofB.now }, database(t))
			peer := impostor.New(t, 5)
			b.OK(t, b.AsAdmin(t), "POST", "/api/trusted-cas", peer.TrustedCA())
			b.OK(t, b.AsAdmin(t), "POST", "/api/trusted-servers", peer.TrustedServer(t, peer.System))
			owner := b.User(t, "owner", keyserver.RoleEncryptor)
			ttag := owner.Mint(t, nil)
			const caller = "00000000000000ca"
			id, err := values.ParseHexID(caller)
			if err != nil {
				t.Fatal(err)
			}
			b.OK(t, owner.Session, "POST", "/api/keys/acl/grant", rig.Object{
				"ttag": ttag, "systemId": peer.System, "principalId": id.Decimal(), "rights": []string{"READ"}, "maxUsage": 1,
			})
			question := impostor.Question(t, peer.System, caller, ttag)
			want := func(t *testing.T, code codes.Code) {
				t.Helper()
				var err error
				rig.Within(t, prompt, "the owner is sure of its state", func() bool {
					err = peer.Ask(t, b.external, question)
					return status.Code(err) != codes.Unavailable
				})
				if status.Code(err) != code {
					t.Errorf("got %v, want %s", err, code)
				}
			}
			want(t, codes.OK)
			want(t, codes.OK)
			ofB.turn(9 * time.Minute)
			want(t, codes.OK)
			ofB.turn(2 * time.Minute)
			want(t, codes.FailedPrecondition) // it is a new call, and no use is left
		})
	}
}

// journal is the log of a key server.
type journal struct{ rig.Output }

// says reports whether one line has all texts.
func (j *journal) says(all ...string) bool {
	for line := range strings.Lines(j.String()) {
		if !slices.ContainsFunc(all, func(part string) bool { return !strings.Contains(line, part) }) {
			return true
		}
	}
	return false
}

// If the clocks differ so much that a certificate is not valid, connections are refused. The key server that refuses
// logs the cause. After the clock is corrected, all requests work again.
func TestClocksTooFarApart(t *testing.T) {
	const present = 2 * time.Hour // both clocks are ahead by this at first
	for name, tc := range map[string]struct {
		turn time.Duration // change of the owner's clock
		logs int           // system id of the key server that refuses
	}{
		// The caller's certificate is not valid yet for the owner.
		"OwnerBehind": {-time.Hour, 3},
		// The owner's certificate has expired, and its new one is not valid yet for the caller.
		"OwnerAhead": {2 * 365 * 24 * time.Hour, 2},
	} {
		t.Run(name, func(t *testing.T) {
			for database, option := range databases {
				t.Run(database, func(t *testing.T) {
					clocks := apart(ahead(present), ahead(present))
					journals := map[int]*journal{2: {}, 3: {}}
					log := func(c *server.Config) {
						c.Logger = slog.New(slog.NewJSONHandler(journals[int(c.SystemID)], nil))
					}
					a, b := open(t, 2, clocks, log, option(t)), open(t, 3, clocks, log, option(t))
					ask := asking(t, a, b)
					if out := ask(); out.Status != http.StatusOK {
						t.Fatalf("before: %s", out.Raw)
					}

					b.Stop(t)
					b.Restart(t, apart(nil, ahead(present+tc.turn)))
					if out := ask(); out.Status != http.StatusServiceUnavailable || out.Code() != "PEER_UNAVAILABLE" {
						t.Errorf("got %d %s", out.Status, out.Raw)
					}
					rig.Within(t, prompt, "the log says why", func() bool {
						if out := ask(); out.Status == http.StatusOK {
							t.Fatalf("let in: %s", out.Raw)
						}
						return journals[tc.logs].says("a connection between key servers was refused", "certificate has expired or is not yet valid")
					})
					b.Stop(t)
					b.Restart(t, apart(nil, ahead(present)))
					rig.Within(t, prompt, "all is as it was", func() bool { return ask().Status == http.StatusOK })
				})
			}
		})
	}
}

// agent enrols a certificate and logs in with it.
func (s *site) agent(t testing.TB, name string, roles ...keyserver.ID) rig.User {
	t.Helper()
	ca, err := pki.NewCA("CA of agents", time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s.TrustCA(t, ca.Certificate.Raw)
	holder := enginetest.NewAgent(t, ca, name, time.Now(), nil)
	over := s.client(t, tls.Certificate{Certificate: [][]byte{holder.Certificate.Raw}, PrivateKey: holder.Key})
	return s.Agent(t, holder.Certificate.Raw, over, roles...)
}
