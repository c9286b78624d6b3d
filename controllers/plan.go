package controllers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	apiclient "github.com/keyserver-operator/keyserver-operator/httpapi/client"
)

// PlannedAction is what the manager would do next about an object.
type PlannedAction string

// The planned actions.
const (
	PlanCreate  PlannedAction = "create"  // make the external object
	PlanUpdate  PlannedAction = "update"  // correct it
	PlanAdopt   PlannedAction = "adopt"   // take it over as it is; the key server does not change
	PlanDelete  PlannedAction = "delete"  // delete it, or one that it has replaced
	PlanNone    PlannedAction = "none"    // nothing
	PlanBlocked PlannedAction = "blocked" // something stands in the way; the reason says what
)

// Intent is what the manager would do next about one object, and why.
type Intent struct {
	Object  client.Object // with the status that the manager would write first
	Kind    string
	Action  PlannedAction
	Reason  v1alpha1.Reason
	Message string
	// What names the external object, for people; ID is its id where it exists.
	What string
	ID   string
	// Drift lists what differs, where the external object exists.
	Drift []v1alpha1.FieldDrift
	// WaitsFor names the objects of the plan that have to be dealt with first.
	WaitsFor []string
	waits    []need
	// Calls are the writes that were refused, by method and path: the first of
	// each action, since what follows it depends on its answer.
	Calls []string
}

// PlanOptions say what a plan is made from.
type PlanOptions struct {
	// Client holds the objects, and everything that they refer to. The
	// reconcilers write to it; what becomes of that is the caller's to decide.
	Client  client.Client
	Indexer client.FieldIndexer
	Log     logr.Logger
	// Clock is nil for the system's.
	Clock clock.Clock
}

// Planner runs the manager's own reconcilers, one pass over each object, on
// connections that let no write through.
type Planner struct {
	setup      *setup
	planning   *planning
	keyServers *keyServerReconciler
	settled    chan struct{}
}

// planning is what the reconcilers of a plan tell.
type planning struct {
	kinds  []plannedKind
	intent *Intent // of the pass under way

	mu      sync.Mutex
	calls   []string // refused during the pass under way
	clients []*apiclient.Client
	// coming is who provides what is not there yet, by the keys that others
	// need it by.
	coming map[string]string
}

// plannedKind is one kind's reconciler.
type plannedKind struct {
	name string
	of   func(client.Object) bool
	pass func(context.Context, types.NamespacedName) error
	// needs is what an object says that it needs, peer the KeyServer that it
	// names as a peer, if any.
	needs func(client.Object) []need
	peer  func(client.Object) string
}

// NewPlanner makes a planner. Close ends its connections.
func NewPlanner(o PlanOptions) (*Planner, error) {
	p := &planning{coming: map[string]string{}}
	c := cluster{client: o.Client, live: o.Client, recorder: silent{}}
	s := newSetupOn(c, o.Indexer, o.Log, Options{Dial: p.dial, Clock: o.Clock})
	s.plan = p
	if err := s.manageKinds(); err != nil {
		return nil, err
	}
	planner := &Planner{setup: s, planning: p, keyServers: s.keyServers(), settled: make(chan struct{}, 1)}
	s.connections.listen(func(context.Context, notice) {
		select {
		case planner.settled <- struct{}{}:
		default:
		}
	})
	return planner, nil
}

// Close ends the sessions and the connections, and waits for them.
func (p *Planner) Close(ctx context.Context) {
	p.setup.connections.close()
	for _, c := range p.planning.clients {
		_ = c.Logout(ctx) // an unused session ends by itself
		c.CloseIdleConnections()
	}
}

// Connect connects to a KeyServer and reports why it cannot be asked. One that
// is paused is no error: its objects say so.
func (p *Planner) Connect(ctx context.Context, name string) error {
	ctx = ctrl.LoggerInto(ctx, p.setup.connections.log)
	request := ctrl.Request{NamespacedName: types.NamespacedName{Name: name}}
	if _, err := p.keyServers.Reconcile(ctx, request); err != nil {
		return fmt.Errorf("KeyServer %q: %w", name, err)
	}
	for {
		if _, why := p.setup.connections.get(name); why == nil || !why.Passing {
			break
		}
		if p.setup.connections.any(name) == nil {
			return fmt.Errorf("KeyServer %q is being deleted, and nothing keeps it", name)
		}
		select {
		case <-p.settled:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	// Again, so that its status says what was found.
	if _, err := p.keyServers.Reconcile(ctx, request); err != nil {
		return fmt.Errorf("KeyServer %q: %w", name, err)
	}
	if _, why := p.setup.connections.get(name); why == nil {
		return nil // whatever else there is to say of it, its deletion for instance
	}
	ks := &v1alpha1.KeyServer{}
	if err := p.setup.client.Get(ctx, request.NamespacedName, ks); err != nil {
		return err
	}
	ready := meta.FindStatusCondition(ks.Status.Conditions, v1alpha1.ConditionReady)
	if ready != nil && ready.Reason != string(v1alpha1.ReasonPaused) {
		return fmt.Errorf("KeyServer %q cannot be asked: %s: %s", name, ready.Reason, ready.Message)
	}
	return nil
}

// Peer returns the name of the KeyServer that an object refers to as a peer of
// its own, or "". It need not answer: what it said before may do.
func (p *Planner) Peer(obj client.Object) string {
	for _, k := range p.planning.kinds {
		if k.of(obj) {
			return k.peer(obj)
		}
	}
	return ""
}

// Plan makes one pass over each object, those that others need first, and
// returns the intents in that order. Their KeyServers must be connected.
func (p *Planner) Plan(ctx context.Context, objects []client.Object) ([]Intent, error) {
	ctx = ctrl.LoggerInto(ctx, p.setup.connections.log)
	intents := make([]Intent, 0, len(objects))
	for _, k := range p.planning.kinds {
		for _, obj := range objects {
			if !k.of(obj) {
				continue
			}
			intent, err := p.planning.look(ctx, k, obj)
			if err != nil {
				return nil, fmt.Errorf("%s %s/%s: %w", k.name, obj.GetNamespace(), obj.GetName(), err)
			}
			intent.waits = k.needs(intent.Object)
			intents = append(intents, *intent)
		}
	}
	for i := range intents {
		p.planning.needsOf(&intents[i])
	}
	return intents, nil
}

// look makes a pass over one object. A pass that met a reading under change is
// made again.
func (p *planning) look(ctx context.Context, k plannedKind, obj client.Object) (*Intent, error) {
	const attempts = 3
	for attempt := 1; ; attempt++ {
		p.intent = nil
		p.mu.Lock()
		p.calls = nil
		p.mu.Unlock()
		if err := k.pass(ctx, client.ObjectKeyFromObject(obj)); err != nil {
			return nil, err
		}
		if p.intent == nil {
			return nil, errors.New("nothing was decided about it; another controller holds its deletion")
		}
		p.mu.Lock()
		p.intent.Calls = p.calls
		p.mu.Unlock()
		if len(p.intent.Calls) > 0 && !p.intent.Action.writes() {
			return nil, fmt.Errorf("it would write (%s) although %s was decided; this is a mistake of the program", p.intent.Calls[0], p.intent.Action)
		}
		if p.intent.Reason != v1alpha1.ReasonProgressing || p.intent.Action != PlanBlocked || attempt == attempts {
			return p.intent, nil
		}
	}
}

func (a PlannedAction) writes() bool { return a == PlanCreate || a == PlanUpdate || a == PlanDelete }

// enlist makes the reconciler of one kind a part of the plan.
func enlist[T managed, D any](p *planning, r *reconciler[T, D]) {
	name := r.kind.Name
	var of *pass[T, D] // that decided
	p.kinds = append(p.kinds, plannedKind{
		name: name,
		of:   func(o client.Object) bool { _, is := o.(T); return is },
		pass: func(ctx context.Context, at types.NamespacedName) error {
			of = nil
			if _, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: at}); err != nil || of == nil {
				return err
			}
			return r.succession(ctx, of, p.intent)
		},
		needs: func(o client.Object) []need {
			c, needs := any(r.adapter).(consumer[T])
			obj, is := o.(T)
			if !needs || !is {
				return nil
			}
			return c.Needs(obj)
		},
		peer: func(o client.Object) string {
			c, peers := any(r.adapter).(peered[T])
			obj, is := o.(T)
			if !peers || !is || c.Peer(obj) == nil {
				return ""
			}
			return c.Peer(obj).Name
		},
	})
	r.decided = func(pass *pass[T, D], d decision) {
		of = pass
		p.intent = intentOf(name, pass.obj, d, pass.facts)
		if prov, is := any(r.adapter).(provider[T]); is && p.intent.Action != PlanNone && p.intent.Action != PlanAdopt {
			// As it would be if its action had been carried out.
			then := copyOf(pass.obj)
			if pass.want != nil {
				r.adapter.Record(then, pass.want, external{Exists: true, ID: "planned"}, true, pass.facts.Now)
			}
			for _, key := range prov.Provides(then) {
				p.coming[key] = r.name(then)
			}
		}
	}
}

// intentOf says what a decision comes to.
func intentOf(kind string, obj client.Object, d decision, f facts) *Intent {
	i := &Intent{
		Object: obj, Kind: kind, Reason: d.Reason, Message: d.Message,
		What: f.External.What, Drift: f.External.Drift, Action: PlanBlocked,
	}
	if f.External.Exists {
		i.ID = f.External.ID
	}
	switch d.Action {
	case actCreate:
		i.Action = PlanCreate
	case actUpdate:
		i.Action = PlanUpdate
		if f.External.ID != f.Owned {
			i.Message = "taking over and " + i.Message
		}
	case actAdopt:
		i.Action, i.Message = PlanAdopt, "taking over as it is: "+f.External.Evidence
	case actDelete, actRetire:
		i.Action = PlanDelete
	case actForget, actRelease:
		i.Action = PlanNone
	case actReport:
		switch {
		case d.Rule == "consequence": // what the deletion takes with it is said first
			i.Action = PlanDelete
		case d.Reason == v1alpha1.ReasonVerified, d.Reason == v1alpha1.ReasonDrifted:
			i.Action = PlanNone
		}
	default: // actWait: a reading under change
		i.Reason = v1alpha1.ReasonProgressing
		if f.Obstacle != nil {
			i.Message = f.Obstacle.Message
		}
	}
	return i
}

// succession has the intent say what becomes of the external object that the
// action replaces. Where it is removed, not even taking over leaves the key
// server as it is.
func (r *reconciler[T, D]) succession(ctx context.Context, p *pass[T, D], i *Intent) error {
	claim := p.facts.External.Replaces
	if claim == "" || (i.Action != PlanCreate && i.Action != PlanAdopt) {
		return nil
	}
	others, err := r.claimants(ctx, p, []string{claim})
	if err != nil {
		return err
	}
	replaced := superseded{ID: p.facts.Owned, Provenance: p.facts.Provenance}
	if len(others) > 0 {
		replaced.ClaimedBy = r.name(others[0])
	}
	i.Message += "; it replaces " + replaced.ID
	if p.facts.dispose(replaced).Action == actForget {
		i.Message += ", which stays"
		return nil
	}
	i.Message += ", which is removed after the overlap"
	if i.Action == PlanAdopt {
		i.Action, i.Reason = PlanUpdate, v1alpha1.ReasonProgressing
	}
	return nil
}

// needsOf has the intent name what it waits for, once all of that is known.
func (p *planning) needsOf(i *Intent) {
	if i.Action != PlanBlocked || i.Reason != v1alpha1.ReasonDependencyNotReady {
		return
	}
	for _, n := range i.waits {
		if who, is := p.coming[n.Key]; is && !slices.Contains(i.WaitsFor, who) {
			i.WaitsFor = append(i.WaitsFor, who)
		}
	}
}

// codePlanned is what a refused write fails with. No service answers it.
const codePlanned = "PLANNED"

// dial is the Dial of a plan: the client is the manager's, and nothing but
// reading passes its transport.
func (p *planning) dial(e Endpoint) (API, error) {
	base, err := url.Parse(e.BaseURL)
	if err != nil {
		return nil, errors.New("the base URL does not parse")
	}
	transport := &http.Transport{
		Proxy:             http.ProxyFromEnvironment,
		TLSClientConfig:   &tls.Config{RootCAs: e.RootCAs, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2: true,
	}
	c, err := apiclient.New(apiclient.Options{
		BaseURL:     e.BaseURL,
		HTTPClient:  &http.Client{Transport: lettingReads{next: transport, under: strings.TrimRight(base.Path, "/"), refused: p.refused}},
		Credentials: apiclient.PasswordCredentials(e.Username, e.Password),
		UserAgent:   "keyserver-operator-plan",
		MaxRetries:  callRetries,
		Timeout:     callTimeout,
	})
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clients = append(p.clients, c)
	return c, nil
}

func (p *planning) refused(call string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, call)
}

// lettingReads lets reading through, and refuses and reports everything else. It
// stands below the client, so that a call that is added there later is refused
// until it is known to read.
type lettingReads struct {
	next    http.RoundTripper
	under   string // the path of the base URL
	refused func(call string)
}

// reads are the calls that read although their method is not GET, or that
// are about the plan's own session.
var reads = []string{
	"POST /api/sessions",
	"DELETE /api/sessions/current",
	"POST /api/server/version",
	"POST /api/principals/lookup",
}

// RoundTrip implements http.RoundTripper.
func (t lettingReads) RoundTrip(r *http.Request) (*http.Response, error) {
	call := r.Method + " " + strings.TrimPrefix(r.URL.Path, t.under)
	if r.Method == http.MethodGet || slices.Contains(reads, call) {
		return t.next.RoundTrip(r)
	}
	if r.Body != nil {
		_ = r.Body.Close()
	}
	t.refused(call)
	return nil, &apiclient.Error{Code: codePlanned, Detail: "a plan writes nothing: " + call + " was not sent"}
}

// CloseIdleConnections is what http.Client looks for.
func (t lettingReads) CloseIdleConnections() {
	if c, is := t.next.(interface{ CloseIdleConnections() }); is {
		c.CloseIdleConnections()
	}
}

// silent records no events.
type silent struct{}

func (silent) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}
