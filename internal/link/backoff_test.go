package link

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	testclock "k8s.io/utils/clock/testing"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// refusing answers every probe with one code.
type refusing struct {
	API
	code  string
	tries atomic.Int64
}

func (r *refusing) GetReadiness(context.Context) (schema.Ready, error) { return schema.Ready{}, nil }

func (r *refusing) GetVersion(context.Context) (schema.Version, error) {
	r.tries.Add(1)
	return schema.Version{}, &client.Error{Code: r.code, Detail: "no"}
}

// TestWrongCredentialsAreTriedRarely: they become right when somebody changes
// something, and until then each try is a failed login in an audit trail.
func TestWrongCredentialsAreTriedRarely(t *testing.T) {
	for code, c := range map[string]struct{ least, most int64 }{
		"INVALID_CREDENTIALS": {5, 25},
		"LOGIN_THROTTLED":     {5, 25},
		"STORE_UNAVAILABLE":   {60, 200},
	} {
		t.Run(code, func(t *testing.T) {
			clock := testclock.NewFakeClock(time.Unix(0, 0))
			api := &refusing{code: code}
			all := NewConnections(func(Endpoint) (API, error) { return api, nil }, clock, DefaultTiming, logr.Discard())
			defer all.Close()
			conn, err := all.Ensure("one", Login{Version: "1"})
			rig.Must(t, err)
			const step = 5 * time.Second
			for range 20 * time.Minute / step {
				rig.Soon(t, "the connection rests", clock.HasWaiters)
				clock.Step(step)
			}
			rig.Soon(t, "the connection rests", clock.HasWaiters)
			if n := api.tries.Load(); n < c.least || n > c.most {
				t.Errorf("%d tries in 20 minutes", n)
			}
			before := api.tries.Load()
			conn.Refresh()
			rig.Soon(t, "it is tried at once when somebody asks", func() bool { return api.tries.Load() > before })
		})
	}
}
