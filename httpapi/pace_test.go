package httpapi

import (
	"context"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/clientaddr"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// busy has the cores busy, and two other principals at work until ctx ends, so that there is a lowest limit.
func (f *fixture) busy(ctx context.Context) {
	p := quota.NewPace[client](f.api.Clock, func() time.Duration { return time.Second })
	f.api.places.pace = p
	for _, by := range []keyserver.PrincipalRef{principal(1), principal(2)} {
		go func() {
			for ctx.Err() == nil {
				_, _ = p.Wait(ctx, client{principal: by})
				time.Sleep(20 * time.Millisecond)
			}
		}()
	}
	time.Sleep(time.Second)
}

// TestShortRequestsWait checks that requests of a principal with many of them wait while the cores are busy, and
// that a request of another one does not.
func TestShortRequestsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		ctx, stop := context.WithCancel(t.Context())
		f.busy(ctx)
		for range 10_000 {
			go func() { _, _ = f.api.places.pace.Wait(ctx, client{principal: principal(3)}) }()
		}
		took := func() time.Duration {
			begun := time.Now()
			if w := f.do(http.MethodGet, "/api/sessions/current", ""); w.Code != http.StatusOK {
				t.Errorf("answered %d %s", w.Code, w.Body)
			}
			return time.Since(begun)
		}
		if wait := took(); wait > 0 {
			t.Errorf("a request waits for %s because of those of another principal", wait)
		}
		for range 10_000 {
			go func() { _, _ = f.api.places.pace.Wait(ctx, client{principal: ann}) }()
		}
		synctest.Wait()
		held := f.api.places.inFlight.Held()
		time.AfterFunc(100*time.Millisecond, stop)
		if wait := took(); wait < 100*time.Millisecond || held != 0 {
			t.Errorf("a request waits for %s, with %d places of work", wait, held)
		}
		time.Sleep(time.Second) // the other principals end
	})
}

// TestConnectionsOfStrangersAreDelayed checks that requests without a session delay the next read from their
// connection if their network has many, unless the connection is that of a proxy.
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
				if c.flood {
					for _, network := range []string{"192.0.2.1/32", "192.0.2.9/32"} {
						for range 1000 {
							f.api.places.pace.Delay(client{network: netip.MustParsePrefix(network)}, strangerWeight)
						}
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
