package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/ledger"
)

// minAnswers is the number of responses in a round before the kill.
const minAnswers = 200

// world has the clients of one server, and the expected state of the server.
type world struct {
	address atomic.Pointer[string]
	over    http.RoundTripper
	admin   *client.Client
	workers []worker

	requests *ledger.Requests
	objects  ledger.Objects
	macs     ledger.MACs
	log      ledger.AuditLog
	sessions ledger.Sessions

	password string           // of admin
	other    schema.DecimalID // a principal that gets rights on keys
}

func newWorld(t *testing.T, r *rand.Rand, server *program.Server) *world {
	t.Helper()
	w := &world{requests: ledger.NewRequests(fmt.Sprintf("crash-%x", r.Uint32()))}
	w.moved(server)
	w.over = w.requests.Transport(program.Connect(t, server.DataDir, func() string { return *w.address.Load() }))
	w.sessions = ledger.Sessions{BaseURL: program.BaseURL, HTTPClient: &http.Client{Transport: w.over}, MaxRetries: program.NoRetries, Timeout: rig.Patience}
	var err error
	if w.password, err = server.Password(); err != nil {
		t.Fatal(err)
	}
	// The administrator retries requests, because a recovered database closes its old connections.
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
	return program.Client(t, w.over, "admin", w.password, retries)
}

// moved tells the clients the new address of the server.
func (w *world) moved(server *program.Server) { w.address.Store(&server.Address) }

// load runs all clients, calls end while they send requests, and waits for them. It returns the number of requests that
// got no response before end was called.
func (w *world) load(t *testing.T, round int, end func()) (early int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	var over atomic.Bool
	failures := make(chan error, len(w.workers))
	var group sync.WaitGroup
	before := w.requests.Answered()
	for i, one := range w.workers {
		group.Go(func() {
			r := rand.New(rand.NewPCG(*seed, uint64(round)<<8|uint64(i)))
			for !over.Load() {
				if err := one.step(ctx, r); err != nil {
					failures <- fmt.Errorf("%s: %w", one.name, err)
					return
				}
			}
		})
	}
	for w.requests.Answered()-before < minAnswers && len(failures) == 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(upTo(rand.New(rand.NewPCG(*seed, uint64(round))), 400*time.Millisecond))
	early = len(failures)
	end()
	over.Store(true)
	group.Wait()
	close(failures)
	for err := range failures {
		if !client.IsUnavailable(err) {
			t.Error(err)
		}
	}
	t.Logf("round %d: %d requests answered", round, w.requests.Answered()-before)
	return early
}

// awaitReady waits until the server is ready again after a restart of its database.
func (w *world) awaitReady(t *testing.T) {
	t.Helper()
	rig.Succeeds(t, func() error {
		_, err := w.admin.GetReadiness(t.Context())
		return err
	})
}

// settle reads objects and compares them with the expected state: all objects, or those that changed since the last
// read. After that, the outcome of a change without a response is known, and workers use it.
func (w *world) settle(ctx context.Context, t *testing.T, round int, all bool) (effects []ledger.Change) {
	t.Helper()
	names := w.objects.Names(all)
	now, err := ledger.View{Client: w.admin, Sessions: w.sessions, Grantee: w.other}.Read(ctx, names)
	if err != nil {
		t.Fatalf("round %d: read the state back: %v", round, err)
	}
	effects, findings := w.objects.Compare(names, now)
	ledger.Report(t, findings)
	return effects
}

// check calls settle, and also compares MACs and the audit log.
func (w *world) check(t *testing.T, round int, all bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	effects := w.settle(ctx, t, round, all)
	if err := w.macs.Check(ctx, w.admin, all); err != nil {
		t.Errorf("round %d: %v", round, err)
	}
	if err := w.log.Read(ctx, w.admin); err != nil {
		t.Fatalf("round %d: %v", round, err)
	}
	ledger.Report(t, w.requests.Effects(&w.log, effects))
	ledger.Report(t, w.requests.Compare(&w.log))
}

func (w *world) summary(t *testing.T) {
	t.Helper()
	t.Logf("%d requests answered, %d objects, %d audit rows", w.requests.Answered(), len(w.objects.Names(true)), w.log.Last)
}
