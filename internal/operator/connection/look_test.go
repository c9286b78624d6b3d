package connection

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// longPollServer is a key server without changes that keeps long polls open. Its readiness check can fail, or not respond.
type longPollServer struct {
	API
	unready, silent atomic.Bool
}

func (h *longPollServer) ListChanges(ctx context.Context, in schema.ChangesQuery) (schema.ChangePage, error) {
	if *in.Wait > 0 {
		<-ctx.Done()
	}
	return schema.ChangePage{}, ctx.Err()
}

func (h *longPollServer) GetReadiness(ctx context.Context) (schema.Ready, error) {
	if h.silent.Load() {
		<-ctx.Done()
		return schema.Ready{}, ctx.Err()
	}
	if h.unready.Load() {
		return schema.Ready{Parts: []schema.Part{{Part: "writes", Detail: "the disk is full"}}}, &client.Error{Status: 503, Code: "NOT_READY", Detail: "no"}
	}
	return schema.Ready{Ready: true}, nil
}

func (h *longPollServer) GetVersion(context.Context) (schema.Version, error) {
	return schema.Version{}, nil
}

// TestTheGateFollowsReady checks that the connection closes if the key server is not ready or does not respond, even
// while a long poll is open. The connection opens again when the key server is ready.
func TestTheGateFollowsReady(t *testing.T) {
	for name, c := range map[string]struct {
		broken func(*longPollServer) *atomic.Bool
		says   string
	}{
		"NotReady": {func(h *longPollServer) *atomic.Bool { return &h.unready }, "the key server is not ready: writes: the disk is full"},
		"Silent":   {func(h *longPollServer) *atomic.Bool { return &h.silent }, "did not respond to the readiness check within"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of the time it waits
			timing := DefaultTiming
			timing.LookEach, timing.ProbeMin, timing.ReadyMax = 10*time.Millisecond, 10*time.Millisecond, 20*time.Millisecond
			api := &longPollServer{}
			all := NewConnections(func(Endpoint) (API, error) { return api, nil }, clock.RealClock{}, timing, logr.Discard())
			defer all.Close()
			conn, err := all.Ensure("one", Login{Version: "1"})
			rig.Must(t, err)
			rig.Soon(t, "the gate is open", func() bool { return conn.Status().Open })
			c.broken(api).Store(true)
			rig.Soon(t, "the gate is shut", func() bool { return !conn.Status().Open })
			if p := conn.Status().Problem; p.Reason != v1beta1.ReasonKeyServerUnavailable || !strings.Contains(p.Message, c.says) {
				t.Errorf("the problem is %+v", p)
			}
			c.broken(api).Store(false)
			rig.Soon(t, "the gate is open again", func() bool { return conn.Status().Open })
		})
	}
}
