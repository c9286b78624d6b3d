package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/clientaddr"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// busy simulates busy cores until ctx ends. One principal sends many requests and another one sends few, so that
// quota.Pace limits requests.
func (f *fixture) busy(ctx context.Context) {
	busy := func() time.Duration { return time.Second }
	f.api.places.pace = quota.NewPace[keyserver.PrincipalRef](f.api.Clock, busy, leastPerCore)
	f.api.places.floods = quota.NewPace[netip.Prefix](f.api.Clock, busy, leastPerCore/strangerWeight)
	work := func(by keyserver.PrincipalRef, each time.Duration) {
		for ctx.Err() == nil {
			_, _ = f.api.places.pace.Wait(ctx, by)
			time.Sleep(each)
		}
	}
	go work(principal(1), time.Millisecond)
	go work(principal(2), 20*time.Millisecond)
	time.Sleep(time.Second)
}

// deadlined records the deadlines of reading.
type deadlined struct {
	*httptest.ResponseRecorder
	deadlines []time.Time
}

func (d *deadlined) SetReadDeadline(t time.Time) error {
	d.deadlines = append(d.deadlines, t)
	return nil
}

// TestShortRequestsWait checks that requests of a principal with many requests wait while the cores are busy, and that
// a request of another principal does not wait.
func TestShortRequestsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		ctx, stop := context.WithCancel(t.Context())
		f.busy(ctx)
		for range 10_000 {
			go func() { _, _ = f.api.places.pace.Wait(ctx, principal(3)) }()
		}
		var w *deadlined
		took := func() time.Duration {
			begun := time.Now()
			w = &deadlined{ResponseRecorder: httptest.NewRecorder()}
			f.api.ServeHTTP(w, request(http.MethodPost, "/api/crypto/hmac", "{}"))
			if w.Code != http.StatusBadRequest {
				t.Errorf("answered %d %s", w.Code, w.Body)
			}
			return time.Since(begun)
		}
		if wait := took(); wait > 0 || len(w.deadlines) == 0 {
			t.Errorf("a request waits for %s because of those of another principal, with deadlines %v", wait, w.deadlines)
		}
		deadlines := len(w.deadlines)
		for range 10_000 {
			go func() { _, _ = f.api.places.pace.Wait(ctx, ann) }()
		}
		synctest.Wait()
		held := f.api.places.inFlight.Held()
		time.AfterFunc(100*time.Millisecond, stop)
		if wait := took(); wait < 100*time.Millisecond || held != 0 {
			t.Errorf("a request waits for %s, with %d places of work", wait, held)
		}
		if len(w.deadlines) <= deadlines {
			t.Error("the time of the body has begun before the wait")
		}
		time.Sleep(time.Second) // until the work of the other principals ends
	})
}

// TestConnectionsOfStrangersAreDelayed checks that a request without a session delays the next read from its connection
// if its network sends many such requests. The connection of a proxy is not delayed.
func TestConnectionsOfStrangersAreDelayed(t *testing.T) {
	proxies, err := clientaddr.ParseProxies([]string{"192.0.2.9"})
	rig.Must(t, err)
	for name, c := range map[string]struct {
		from    string
		flood   bool
		delayed bool
	}{
		"of a flood":                            {"192.0.2.1:1", true, true},
		"of a flood, with a proxy's connection": {"192.0.2.9:1", true, false},
		"of another network":                    {"198.51.100.1:1", true, false},
		"of few requests":                       {"192.0.2.1:1", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var delayed time.Duration
				f := newFixture(t, func(conf *Config) {
					conf.Proxies = proxies
					conf.Delay = func(_ context.Context, d time.Duration) { delayed = d }
				})
				ctx, stop := context.WithCancel(t.Context())
				f.busy(ctx)
				go func() {
					for ctx.Err() == nil {
						f.do(http.MethodGet, "/api/sessions/current", "")
						time.Sleep(20 * time.Millisecond)
					}
				}()
				if c.flood {
					for range 40 {
						for range 1000 {
							f.api.places.floods.Delay(netip.MustParsePrefix("192.0.2.1/32"), time.Second)
							f.api.places.floods.Delay(netip.MustParsePrefix("192.0.2.9/32"), time.Second)
						}
						time.Sleep(50 * time.Millisecond)
					}
				}
				r := request(http.MethodGet, "/api/health", "")
				r.Header.Del("Authorization")
				r.RemoteAddr = c.from
				begun := time.Now()
				if w := f.send(r); w.Code != http.StatusOK || time.Since(begun) > 0 {
					t.Errorf("answered %d %s after %s", w.Code, w.Body, time.Since(begun))
				}
				if got := delayed > 500*time.Millisecond; got != c.delayed {
					t.Errorf("the connection is delayed by %s", delayed)
				}
				stop()
				time.Sleep(time.Second)
			})
		})
	}
}
