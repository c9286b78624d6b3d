package consistency

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// operation is the request of a client: grant, revoke or authorize.
type operation int

const (
	grant operation = iota
	revoke
	authorize
)

// input is an operation on one entry. Entries are independent, so that each is checked separately.
type input struct {
	op    operation
	entry int
}

// entry is the specification of one principal's entry on one key: a grant adds it, a revocation
// removes it, and authorize returns whether it exists.
var entry = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byEntry := map[int][]porcupine.Operation{}
		for _, op := range history {
			which := op.Input.(input).entry
			byEntry[which] = append(byEntry[which], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byEntry {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return false },
	Step: func(state, in, out any) (bool, any) {
		switch in.(input).op {
		case grant:
			return true, true
		case revoke:
			return true, false
		default:
			return out == state, state
		}
	},
}

// history has the operations and responses of the clients, with times of one clock.
type history struct {
	// staleness is how old a response may be. A read may have taken effect that long before its
	// request. Nothing else changes.
	staleness time.Duration
	start     time.Time

	mu    sync.Mutex
	ops   []porcupine.Operation
	tally map[int]tally // by client
}

// tally has the numbers of a client's responses with a decision.
type tally struct{ written, allowed, refused int }

func newHistory(staleness time.Duration) *history {
	return &history{staleness: staleness, start: time.Now(), tally: map[int]tally{}}
}

func (h *history) now() int64 { return int64(time.Since(h.start)) }

// never is the return time of an operation whose effect is unknown: it may take effect at any later time, or never.
const never = int64(1) << 62

func (h *history) wrote(client int, in input, call, end int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if end != never {
		n := h.tally[client]
		n.written++
		h.tally[client] = n
	}
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Call: call, Return: end})
}

func (h *history) read(client, which int, allowed bool, call, end int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.tally[client]
	if allowed {
		n.allowed++
	} else {
		n.refused++
	}
	h.tally[client] = n
	h.ops = append(h.ops, porcupine.Operation{
		ClientId: client, Input: input{authorize, which}, Output: allowed, Call: call - int64(h.staleness), Return: end,
	})
}

// The minimum numbers of responses of each client. A history of failures only would fit every order.
const (
	minWritten = 20 // per owner
	minDecided = 5  // of each kind, per user
)

// missing returns an error that names a client with too few responses. The owners are the first clients.
func (h *history) missing(owners, users int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for client := range owners {
		if n := h.tally[client]; n.written < minWritten {
			return fmt.Errorf("owner %d had %d writes acknowledged", client, n.written)
		}
	}
	for user := range users {
		if n := h.tally[owners+user]; n.allowed < minDecided || n.refused < minDecided {
			return fmt.Errorf("user %d was allowed %d times and refused %d times", user, n.allowed, n.refused)
		}
	}
	return nil
}

// heardSince returns the time of the first response to one of the clients after moment, and whether each client got a
// response after moment.
func (h *history) heardSince(moment int64, clients ...int) (first int64, all bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	heard := map[int]bool{}
	first = never
	for _, op := range h.ops {
		if op.Return > moment && op.Return != never && slices.Contains(clients, op.ClientId) {
			heard[op.ClientId], first = true, min(first, op.Return)
		}
	}
	return first, len(heard) == len(clients)
}

// verdict searches for an order, with a timeout. The search in a correct history is fast.
func (h *history) verdict() porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(entry, h.ops, rig.Patience)
}

// TestTheCheckerRefuses checks that the checker rejects responses that are older than the staleness bound, and accepts
// newer responses.
func TestTheCheckerRefuses(t *testing.T) {
	const s = int64(time.Second)
	for name, tc := range map[string]struct {
		staleness time.Duration
		asked     int64 // request time of the stale response; the revocation ended at 2 s
		want      porcupine.CheckResult
	}{
		"StaleAtOnce":     {0, 2*s + 1, porcupine.Illegal},
		"WithinTheBound":  {time.Second, 3*s - 1, porcupine.Ok},
		"BeyondTheBound":  {time.Second, 3*s + 1, porcupine.Illegal},
		"WhileItIsUnsure": {0, 2*s - 1, porcupine.Ok},
	} {
		h := newHistory(tc.staleness)
		h.wrote(1, input{grant, 1}, 0, s)
		h.wrote(1, input{revoke, 1}, 2*s-10, 2*s)
		h.read(2, 1, true, tc.asked, tc.asked+1)
		if got := h.verdict(); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
