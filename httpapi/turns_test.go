package httpapi

import (
	"context"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// long are routes that take turns, and short are routes that do not.
var (
	long = []string{"listAuditEntries", "listKeys", "listRoles", "listCapable", "computeMacs", "verifyMacs", "getDecisions", "getExplanation", "lookUpPrincipals",
		"enrollCertificates", "findCertificatesBySubject", "executeApproval", "getAuditEntries"}
	short = []string{"computeHmac", "computeMac", "encrypt", "getCurrentSession", "getAcl", "listChanges", "createRole"}
)

// aTurn takes the only turn after the work of two principals, so that long requests have to wait for turns.
func (f *fixture) aTurn(t *testing.T) (end func()) {
	t.Helper()
	f.api.places.turns = quota.NewTurns[keyserver.PrincipalRef](1, f.api.Clock)
	f.api.places.turns.Worked(principal(1))
	f.api.places.turns.Worked(principal(2))
	end, err := f.api.places.turns.Enter(t.Context(), principal(2))
	rig.Must(t, err)
	return end
}

func TestLongRequestsTakeTurns(t *testing.T) {
	for _, r := range routes.All() {
		takes := slices.Contains(long, r.Name)
		if !takes && !slices.Contains(short, r.Name) {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			f := newFixture(t)
			end := f.aTurn(t)
			good, answer := sampleOf(r), make(chan *httptest.ResponseRecorder, 1)
			go func() { answer <- f.do(r.Method, good.target(r), good.text()) }()
			if takes {
				rig.Soon(t, "the request waits", func() bool { return f.api.places.await.Held() == 1 })
				if held := f.api.places.inFlight.Held(); held != 0 {
					t.Errorf("it holds %d places of work", held)
				}
				end()
			}
			if w := <-answer; w.Code >= 300 {
				t.Errorf("it is answered %d %s", w.Code, w.Body)
			}
			if takes {
				ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
				defer cancel()
				_, err := f.api.places.turns.Enter(ctx, principal(2)) // its turn has ended
				rig.Must(t, err)
			}
		})
	}
}

// TestLongBodiesTakeTurns checks that a long body waits for a turn even if it is not JSON.
func TestLongBodiesTakeTurns(t *testing.T) {
	all := routes.All()
	r := all[slices.IndexFunc(all, func(r routes.Route) bool { return r.Name == "importCrl" })]
	for name, begin := range map[string]string{"a request": sampleOf(r).text(), "no JSON": "{"} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			defer f.aTurn(t)()
			ctx, hangUp := context.WithCancel(t.Context())
			answer := make(chan *httptest.ResponseRecorder, 1)
			go func() {
				answer <- f.send(request(r.Method, r.Path, begin+strings.Repeat(" ", routes.SmallBody)).WithContext(ctx))
			}()
			rig.Soon(t, "the request waits", func() bool { return f.api.places.await.Held() == 1 })
			hangUp()
			<-answer
			if f.api.places.await.Held() != 0 || f.api.places.bodies.Held() != 0 {
				t.Error("a request whose client has hung up still waits")
			}
		})
	}
}

// TestLongBodiesAreReadInShares checks that a principal waits if it has sent more bytes in long bodies than its share.
// It does not wait if no other principal sends requests.
func TestLongBodiesAreReadInShares(t *testing.T) {
	all := routes.All()
	r := all[slices.IndexFunc(all, func(r routes.Route) bool { return r.Name == "importCrl" })]
	for name, c := range map[string]struct {
		others bool
		length int
		waits  bool
	}{
		"next to others":                  {true, 3 * routes.SmallBody, true},
		"next to others, of a small body": {true, routes.SmallBody / 2, false},
		"alone":                           {false, 3 * routes.SmallBody, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				if c.others {
					f.api.places.turns.Worked(principal(1))
					f.api.places.turns.Worked(principal(2))
				}
				for range 3 {
					f.api.places.read.Count(ann, math.MaxInt)
				}
				debt, begun := f.api.places.read.Wait(ann, 0), time.Now()
				w := f.do(r.Method, r.Path, "{"+strings.Repeat(" ", c.length))
				if took := time.Since(begun); c.waits != (took >= debt) || !c.waits && took > 0 {
					t.Errorf("the body is read after %s, with a debt of %s", took, debt)
				}
				if w.Code != http.StatusBadRequest {
					t.Errorf("answered %d %s", w.Code, w.Body)
				}
			})
		})
	}
}

// TestStreamedMessagesAreReadInShares checks that all streamed messages of a principal together are read at the rate of
// its share, unless no other principal sends requests.
func TestStreamedMessagesAreReadInShares(t *testing.T) {
	const messages, length = 64, 8 * routes.SmallBody
	const rate, burst = 4 << 20, 1 << 20
	for name, c := range map[string]struct {
		others bool
		length int
		least  time.Duration
	}{
		"next to others":                    {true, length, messages * (length - routes.SmallBody) / rate * time.Second / 2},
		"next to others, of short messages": {true, routes.SmallBody / 2, 0},
		"alone":                             {false, length, 0},
	} {
		for _, r := range routes.All() {
			if !r.Streamed() {
				continue
			}
			t.Run(name+"/"+r.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFixture(t)
					f.api.places.read = quota.NewMeter[keyserver.PrincipalRef](rate, burst, f.api.Clock)
					ctx, end := context.WithCancel(t.Context())
					var other, under sync.WaitGroup
					if c.others {
						other.Go(func() {
							for ctx.Err() == nil {
								f.api.places.turns.Worked(principal(2))
								time.Sleep(100 * time.Millisecond)
							}
						})
						synctest.Wait() // until principal 2 has worked
					}
					body := strings.Replace(sampleOf(r).text(), `"data":"`, `"data":"`+strings.Repeat("A", c.length), 1)
					begun := time.Now()
					for range messages {
						under.Go(func() {
							if w := f.do(r.Method, r.Path, body); w.Code != http.StatusOK {
								t.Errorf("answered %d %s", w.Code, w.Body)
							}
						})
					}
					under.Wait()
					if took := time.Since(begun); took < c.least || c.least == 0 && took > 0 {
						t.Errorf("%d messages are read in %s, want %s at least", messages, took, c.least)
					}
					end()
					other.Wait()
				})
			})
		}
	}
}

func TestLongRequestsThatWaitHaveAShare(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MaxInFlight = 8 })
	for range quota.Share(8) {
		_, verdict := f.api.places.await.Join(ann, func() {})
		if verdict != quota.Taken {
			t.Fatal(verdict)
		}
	}
	w := f.do(http.MethodGet, "/api/roles", "")
	if body := w.Body.String(); w.Code != http.StatusServiceUnavailable || !strings.Contains(body, `"`+string(fault.Overloaded)+`"`) || !strings.Contains(body, `"session"`) {
		t.Errorf("answered %d %s", w.Code, body)
	}
}
