package federation

import (
	"context"
	"encoding/pem"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// traffic is a caller of one key server that uses a key of another one repeatedly. Every second request has a new
// connection.
type traffic struct {
	from, to *site
	name     string // of the caller
	caller   rig.User
	ttag     string
	asked    atomic.Int64
}

func newTraffic(t *testing.T, from, to *site) *traffic {
	t.Helper()
	name := "to " + to.URL()
	owner := to.User(t, "owner for "+from.URL(), keyserver.RoleEncryptor)
	w := &traffic{from: from, to: to, name: name, caller: from.User(t, name, keyserver.RoleExchanger), ttag: owner.Mint(t, []byte("the key that stays at home"))}
	from.Expose(t, w.caller.ID, to.Site)
	owner.Grant(t, w.ttag, w.caller, "READ")
	return w
}

// run sends requests until ctx ends, and fails the test if one fails.
func (w *traffic) run(ctx context.Context, t *testing.T) {
	want := macOf([]byte("the key that stays at home"), []byte("message"))
	fresh := w.from.client(t) // it knows only the CAs of this time
	for n := 0; ctx.Err() == nil; n++ {
		at := w.from.Site
		if n%2 == 1 {
			fresh.CloseIdleConnections()
			at = w.from.WithHTTPClient(fresh)
		}
		a, err := at.Try(context.WithoutCancel(ctx), rig.Request{Session: w.caller.Session, Method: "POST", Path: "/api/crypto/hmac", Body: hmacOf(w.ttag, []byte("message"))})
		if err != nil || a.Status != http.StatusOK || a.Field("mac") != want {
			t.Errorf("%d to %d: %v %d %s", w.from.System, w.to.System, err, a.Status, a.Raw)
			return
		}
		w.asked.Add(1)
	}
}

// once sends one request in a new session.
func (w *traffic) once(t *testing.T) rig.Answer {
	t.Helper()
	session := w.from.LogIn(t, w.name, rig.Password)
	return w.from.Send(t, session, "POST", "/api/crypto/hmac", hmacOf(w.ttag, []byte("message")))
}

// authority returns the CA in a state.
func (s *site) authority(t testing.TB, state string) rig.Object {
	t.Helper()
	for _, a := range s.OK(t, s.AsAdmin(t), "GET", "/api/authority", nil).List(t, "authorities") {
		if a["state"] == state {
			return a
		}
	}
	t.Fatalf("%d has no authority that is %s", s.System, state)
	return nil
}

// rotate switches a key server to a new CA in three steps, and calls meanwhile after each step.
func (s *site) rotate(t testing.TB, meanwhile func()) {
	t.Helper()
	before := s.authority(t, "active")["certificateId"]
	s.OK(t, s.AsAdmin(t), "POST", "/api/authority/prepare", nil)
	meanwhile()
	s.OK(t, s.AsAdmin(t), "POST", "/api/authority/activate", rig.Object{"early": true})
	meanwhile()
	s.OK(t, s.AsAdmin(t), "POST", "/api/authority/retire", rig.Object{"certificateId": before})
	meanwhile()
}

// Three federated key servers replace all CAs twice while each uses keys of the others. No request
// fails, over existing connections or over new ones of clients that only know the first CA.
func TestAllAuthoritiesRotateUnderLoad(t *testing.T) {
	for name, database := range databases {
		t.Run(name, func(t *testing.T) {
			all := []*site{open(t, 2, database(t)), open(t, 3, database(t)), open(t, 4, database(t))}
			var loads []*traffic
			for _, from := range all {
				for _, to := range all {
					if from != to {
						from.register(t, to)
					}
				}
			}
			for _, from := range all {
				for _, to := range all {
					if from != to {
						loads = append(loads, newTraffic(t, from, to))
					}
				}
			}
			ctx, stop := context.WithCancel(t.Context())
			var under sync.WaitGroup
			for _, w := range loads {
				under.Go(func() { w.run(ctx, t) })
			}
			each := func() { // waits for some requests of each caller
				for _, w := range loads {
					before := w.asked.Load()
					rig.Soon(t, "a request is answered", func() bool { return t.Failed() || w.asked.Load() > before+3 })
				}
			}
			for range 2 {
				for _, s := range all {
					s.rotate(t, each)
				}
			}
			stop()
			under.Wait()
			for _, s := range all {
				if list := s.OK(t, s.AsAdmin(t), "GET", "/api/authority", nil).List(t, "authorities"); len(list) != 1 {
					t.Errorf("%d has %d authorities", s.System, len(list))
				}
				learned := s.OK(t, s.AsAdmin(t), "GET", "/api/audit?operation=learnAuthority", nil).List(t, "entries")
				if len(learned) < 2 { // at least one row for each other key server
					t.Errorf("%d learned %d authorities", s.System, len(learned))
				}
				pemFile, err := os.ReadFile(s.CAFile())
				rig.Must(t, err)
				if block, rest := pem.Decode(pemFile); block == nil || len(rest) > 0 {
					t.Errorf("%d publishes %d bytes", s.System, len(pemFile))
				}
			}
			for _, w := range loads {
				t.Logf("%d to %d: %d requests", w.from.System, w.to.System, w.asked.Load())
			}
		})
	}
}

// A key server was stopped while a peer replaced its CA twice. It learns the new CA from the link certificates.
func TestOffDuringRotations(t *testing.T) {
	between(t, func(t *testing.T, a, b *site) {
		w := newTraffic(t, b, a)
		b.Stop(t)
		for range 2 {
			a.rotate(t, func() {})
		}
		b.Restart(t)
		if out := w.once(t); out.Status != http.StatusOK {
			t.Errorf("back again: %s", out.Raw)
		}
	})
}

const year = 365 * 24 * time.Hour

// A key server was stopped for years, until the CA of its peer that it trusts had expired. It reports the remedy, and
// the remedy works. In that time, the peer has rotated its CA automatically.
func TestOffUntilTheAuthorityHasEnded(t *testing.T) {
	for name, database := range databases {
		t.Run(name, func(t *testing.T) {
			ticking, log := ahead(0), &journal{}
			on := func(c *server.Config) {
				c.Clock, c.Logger = ticking.now, slog.New(slog.NewJSONHandler(log, nil))
			}
			a := open(t, 2, on, database(t))
			first := a.authority(t, "active")["certificateId"]
			pass := func(by time.Duration) { // while a is stopped; then it checks its CA
				a.Stop(t)
				ticking.turn(by)
				a.Restart(t)
				a.DropSessions()
				a.HTTP = a.client(t) // the new client trusts the current CAs
			}
			pass(5*year - time.Hour)
			b := open(t, 3, on, database(t))
			b.register(t, a)
			a.register(t, b)
			w := newTraffic(t, b, a)
			if out := w.once(t); out.Status != http.StatusOK {
				t.Fatalf("before: %s", out.Raw)
			}
			b.Stop(t)
			for _, state := range []string{"prepared", "retiring"} {
				pass(2 * year)
				rig.Soon(t, "an authority is "+state, func() bool {
					list := a.OK(t, a.AsAdmin(t), "GET", "/api/authority", nil).List(t, "authorities")
					return slices.ContainsFunc(list, func(o rig.Object) bool { return o["state"] == state })
				})
			}
			pass(2 * year)
			rig.Soon(t, "the first one is gone", func() bool {
				list := a.OK(t, a.AsAdmin(t), "GET", "/api/authority", nil).List(t, "authorities")
				return !slices.ContainsFunc(list, func(o rig.Object) bool { return o["certificateId"] == first })
			})
			b.Restart(t)
			b.DropSessions()
			if out := w.once(t); out.Code() != "PEER_UNAVAILABLE" {
				t.Fatalf("back again: %s", out.Raw)
			}
			rig.Soon(t, "the log says what to do", func() bool {
				return log.says("the peer 2", "POST /api/trusted-cas", "with replace (POST /api/trusted-servers)", "GET /api/trust/local-info on the peer")
			})
			b.Trust(t, a.Site)
			b.OK(t, b.AsAdmin(t), "POST", "/api/trusted-servers", rig.Object{
				"trustBlob": a.Blob(t, ""), "friendlyName": "a", "description": "", "replace": true,
			})
			rig.Soon(t, "it works again", func() bool { return w.once(t).Status == http.StatusOK })
		})
	}
}
