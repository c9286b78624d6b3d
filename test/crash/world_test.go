package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// minAnswers is how many requests of a round are answered before the kill.
const minAnswers = 200

// world is the clients of one server, and what they know.
type world struct {
	address atomic.Pointer[string]
	web     *http.Client // for what package client does not say
	witness *witness
	ledger  *ledger
	trail   trail
	admin   *client.Client
	workers []worker
	macs    macs

	password string           // of admin
	other    schema.DecimalID // a principal that rights are given to
}

func newWorld(t *testing.T, r *rand.Rand, server *program.Server) *world {
	t.Helper()
	w := &world{ledger: newLedger()}
	w.moved(server)
	w.witness = newWitness(program.Connect(t, server.DataDir, func() string { return *w.address.Load() }), fmt.Sprintf("crash-%x", r.Uint32()))
	w.web = &http.Client{Transport: w.witness, Timeout: rig.Patience}
	var err error
	if w.password, err = server.Password(); err != nil {
		t.Fatal(err)
	}
	// Who reads back may be told to try again; a database that comes back drops
	// the connections that it had.
	w.admin = w.client(t, 5)
	other, err := w.admin.CreatePasswordPrincipal(context.Background(), schema.CreatePasswordPrincipalRequest{
		Name: "other", Password: "other's password",
	})
	if err != nil {
		t.Fatal(err)
	}
	w.other = other.Principal.PrincipalID
	w.workers = newWorkers(t, r, w)
	return w
}

func (w *world) client(t *testing.T, retries int) *client.Client {
	t.Helper()
	return program.Client(t, w.witness, "admin", w.password, retries)
}

// moved tells the clients where the server is now.
func (w *world) moved(server *program.Server) { w.address.Store(&server.Address) }

// load lets all clients work, ends what they work on, and waits for them. It
// answers how many had been left without an answer before the end.
func (w *world) load(t *testing.T, round int, end func()) (early int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	var over atomic.Bool
	failures := make(chan error, len(w.workers))
	var group sync.WaitGroup
	before := w.witness.count()
	for i, one := range w.workers {
		group.Go(func() {
			r := rand.New(rand.NewPCG(*seed, uint64(round)<<8|uint64(i)))
			for !over.Load() {
				if err := one.step(ctx, r); err != nil {
					failures <- fmt.Errorf("%T: %w", one, err)
					return
				}
			}
		})
	}
	for w.witness.count()-before < minAnswers && len(failures) == 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(upTo(rand.New(rand.NewPCG(*seed, uint64(round))), 400*time.Millisecond))
	early = len(failures)
	end()
	over.Store(true)
	group.Wait()
	close(failures)
	for err := range failures {
		if !errors.Is(err, errUnanswered) && !client.IsUnavailable(err) {
			t.Error(err)
		}
	}
	t.Logf("round %d: %d requests answered", round, w.witness.count()-before)
	return early
}

// awaitReady waits for a server that was not restarted itself.
func (w *world) awaitReady(t *testing.T) {
	t.Helper()
	rig.Succeeds(t, func() error {
		_, err := w.admin.GetReadiness(t.Context())
		return err
	})
}

// settle reads objects back and compares: all that were ever acknowledged, or all that
// are new since they were read before. Of a change without an answer it is known from then on
// whether it happened, which workers go by.
func (w *world) settle(ctx context.Context, t *testing.T, round int, all bool) {
	t.Helper()
	names := w.ledger.names(all)
	now, err := w.observe(ctx, names)
	if err != nil {
		t.Fatalf("round %d: read the state back: %v", round, err)
	}
	for _, name := range names {
		if _, ok := now[name]; !ok {
			now[name] = ""
		}
	}
	for name, value := range now {
		if allowed, ok := w.ledger.settle(name, value); !ok {
			t.Errorf("round %d: %s is %q, and by what was acknowledged it is one of %q", round, name, value, allowed)
		}
	}
}

// check settles, and compares MACs and the audit trail as well.
func (w *world) check(t *testing.T, round int, all bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	w.settle(ctx, t, round, all)
	if err := w.macs.check(ctx, w.admin, all); err != nil {
		t.Errorf("round %d: %v", round, err)
	}
	w.trail.rows = map[string][]schema.AuditEntry{}
	if err := w.trail.follow(ctx, w.admin); err != nil {
		t.Fatalf("round %d: read the audit trail: %v", round, err)
	}
	w.witness.check(t, &w.trail)
}

func (w *world) summary(t *testing.T) {
	t.Helper()
	t.Logf("%d requests answered, %d objects, %d audit rows", w.witness.count(), len(w.ledger.names(true)), w.trail.last)
}
