package strangers

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestBatchesThatAreRefused: whoever sends batches of which each item is refused, and a row of the
// trail, leaves half of its rate to somebody honest, and is put off.
func TestBatchesThatAreRefused(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		greedy := s.User(t, "greedy", keyserver.RoleEncryptor)
		items := make([]rig.Object, 1000)
		for i := range items {
			items[i] = rig.Object{"lineage": s.link, "data": "AAAA"}
		}
		var decided, putOff atomic.Int64
		kept := s.keeps(t, 0.5, func() (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			var going sync.WaitGroup
			for range 2 {
				going.Go(func() {
					for ctx.Err() == nil {
						a, err := s.Try(ctx, rig.Request{Session: greedy.Session, Method: "POST", Path: "/api/crypto/mac/batch", Body: rig.Object{"items": items}})
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
		})
		if kept < 0.3 {
			t.Errorf("somebody honest keeps %.2f of its rate", kept)
		}
		if decided.Load() == 0 || putOff.Load() == 0 {
			t.Errorf("%d batches were decided and %d put off", decided.Load(), putOff.Load())
		}
	})
}
