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
)

// patience bounds waits that only a server that hangs can exhaust.
const patience = 2 * time.Minute

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
	roots, err := program.Roots(server.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{ledger: newLedger()}
	w.moved(server)
	transport := program.Transport(roots, func() string { return *w.address.Load() })
	t.Cleanup(transport.CloseIdleConnections)
	w.witness = newWitness(transport, fmt.Sprintf("crash-%x", r.Uint32()))
	w.web = &http.Client{Transport: w.witness, Timeout: patience}
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

// never is a number of retries: each request is answered or it is not.
const never = -1

func (w *world) client(t *testing.T, retries int) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{
		BaseURL: program.BaseURL, HTTPClient: &http.Client{Transport: w.witness}, MaxRetries: retries, Timeout: patience,
		Credentials: client.PasswordCredentials("admin", func(context.Context) (string, error) { return w.password, nil }),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// moved tells the clients where the server is now.
func (w *world) moved(server *program.Server) { w.address.Store(&server.Address) }

// load lets all clients work, ends what they work on, and waits for them. It
// answers how many had been left without an answer before the end.
func (w *world) load(t *testing.T, round int, end func()) (early int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
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
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		_, err := w.admin.Ready(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the server does not become ready again: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// check reads back and compares: all that was ever acknowledged, or all that
// is new since the check before.
func (w *world) check(t *testing.T, round int, all bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
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
