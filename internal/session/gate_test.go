package session

import (
	"context"
	"fmt"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/fault"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestStrangersFillTheirOwnQueue: however many strangers wait, whoever is known
// where he is gets his turn.
func TestStrangersFillTheirOwnQueue(t *testing.T) {
	g := newLoginGate(1)
	hold, err := g.enter(t.Context(), Login{From: From{Address: "192.0.2.1"}})
	rig.Must(t, err)
	defer hold()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for i := range waitingPerPlace {
		go func() {
			if leave, err := g.enter(ctx, Login{From: From{Address: fmt.Sprintf("198.51.100.%d", i)}}); err == nil {
				leave()
			}
		}()
	}
	rig.Soon(t, "the strangers wait", func() bool { return g.strangers.queue.Held() == waitingPerPlace })
	if _, err := g.enter(t.Context(), Login{From: From{Address: "203.0.113.1"}}); fault.CodeOf(err) != fault.Overloaded {
		t.Errorf("one stranger more: %v", err)
	}
	leave, err := g.enter(t.Context(), Login{From: From{Address: "203.0.113.1"}, attempt: attempt{known: true}})
	if err != nil {
		t.Fatalf("somebody known: %v", err)
	}
	leave()
}
