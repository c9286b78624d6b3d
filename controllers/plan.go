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
	apiclient "github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
)

// PlanOptions are the inputs of a plan.
type PlanOptions struct {
	// Client has the objects, and everything that they refer to. The reconcilers
	// write to it; the caller decides what happens with these writes.
	Client  client.Client
	Indexer client.FieldIndexer
	Log     logr.Logger
	// Issuer of the cluster; nil without a cluster.
	Issuer *sources.Issuer
	// Clock is the system's if nil.
	Clock clock.Clock
}

// Planner runs the manager's reconcilers, one pass for each
// object, on connections that refuse all writes.
type Planner struct {
	registry   *reconcile.Registry
	keyServers *keyServerReconciler
	log        logr.Logger
	settled    chan struct{}

	mu      sync.Mutex
	calls   []string // refused during the present pass
	clients []*apiclient.Client
}

// NewPlanner returns a Planner. Close ends its connections.
func NewPlanner(o PlanOptions) (*Planner, error) {
	p := &Planner{log: o.Log.WithName("connection"), settled: make(chan struct{}, 1)}
	c := reconcile.Cluster{Client: o.Client, Live: o.Client, Recorder: silent{}, Identity: &reconcile.Identity{Planned: true}, Issuer: o.Issuer}
	p.registry = Options{Dial: p.dial, Clock: o.Clock}.registry(c, o.Indexer, o.Log)
	if err := registerKinds(p.registry); err != nil {
		return nil, err
	}
	p.keyServers = newKeyServerReconciler(p.registry)
	p.registry.Connections.Listen(func(context.Context, connection.Notice) {
		select {
		case p.settled <- struct{}{}:
		default:
		}
	})
	return p, nil
}

// Close ends the sessions and the connections, and waits for them.
func (p *Planner) Close(ctx context.Context) {
	p.registry.Connections.Close()
	for _, c := range p.clients {
		_ = c.Logout(ctx) // an unused session ends by itself
		c.CloseIdleConnections()
	}
}

// Connect connects to a KeyServer. It returns an error if the connection
// fails. A paused KeyServer is not an error: its objects report it.
func (p *Planner) Connect(ctx context.Context, name string) error {
	ctx = ctrl.LoggerInto(ctx, p.log)
	request := ctrl.Request{NamespacedName: types.NamespacedName{Name: name}}
	if _, err := p.keyServers.Reconcile(ctx, request); err != nil {
		return fmt.Errorf("KeyServer %q: %w", name, err)
	}
	for {
		if _, why := p.registry.Connections.Get(name); why == nil || !why.Transient {
			break
		}
		if p.registry.Connections.Any(name) == nil {
			return fmt.Errorf("KeyServer %q is being deleted, and no object blocks its deletion", name)
		}
		select {
		case <-p.settled:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	// The second pass writes the state of the connection to the status.
	if _, err := p.keyServers.Reconcile(ctx, request); err != nil {
		return fmt.Errorf("KeyServer %q: %w", name, err)
	}
	if _, why := p.registry.Connections.Get(name); why == nil {
		return nil // even if there is more to report, such as its deletion
	}
	ks := &v1alpha1.KeyServer{}
	if err := p.registry.Client.Get(ctx, request.NamespacedName, ks); err != nil {
		return err
	}
	ready := meta.FindStatusCondition(ks.Status.Conditions, v1alpha1.ConditionReady)
	if ready != nil && ready.Reason != string(v1alpha1.ReasonPaused) {
		return fmt.Errorf("KeyServer %q is not ready: %s: %s", name, ready.Reason, ready.Message)
	}
	return nil
}

// Peer returns the name of the KeyServer that an object refers to as its peer, or
// "". That KeyServer does not have to respond: its last response may be enough.
func (p *Planner) Peer(obj client.Object) string {
	for _, c := range p.registry.Controllers {
		if c.Has(obj) {
			return c.Peer(obj)
		}
	}
	return ""
}

// Plan makes one pass over each object and returns the intents in the same order. Needed
// objects come before those that need them. The KeyServers of the objects must be connected.
func (p *Planner) Plan(ctx context.Context, objects []client.Object) ([]reconcile.Intent, error) {
	ctx = ctrl.LoggerInto(ctx, p.log)
	intents := make([]reconcile.Intent, 0, len(objects))
	// coming has the objects that will provide keys that others need.
	coming := map[string]string{}
	for _, c := range p.registry.Controllers {
		for _, obj := range objects {
			if !c.Has(obj) {
				continue
			}
			intent, err := p.look(ctx, c, obj)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", reconcile.NameOf(c.Kind(), obj), err)
			}
			for _, key := range intent.Provides {
				coming[key] = reconcile.NameOf(intent.Kind, obj)
			}
			intents = append(intents, *intent)
		}
	}
	for i := range intents {
		await(&intents[i], coming)
	}
	return intents, nil
}

// look makes a pass over one object. It repeats a pass that
// met a list that changed while it was read.
func (p *Planner) look(ctx context.Context, c reconcile.Controller, obj client.Object) (*reconcile.Intent, error) {
	const attempts = 3
	for attempt := 1; ; attempt++ {
		p.mu.Lock()
		p.calls = nil
		p.mu.Unlock()
		intent, err := c.Plan(ctx, client.ObjectKeyFromObject(obj))
		if err != nil {
			return nil, err
		}
		if intent == nil {
			return nil, errors.New("it is being deleted, and only finalizers of other controllers block its deletion")
		}
		p.mu.Lock()
		intent.Calls = p.calls
		p.mu.Unlock()
		if len(intent.Calls) > 0 && !intent.Action.Writes() {
			return nil, fmt.Errorf("the plan tried to write (%s) although the planned action is %s; this is a bug, please report it", intent.Calls[0], intent.Action)
		}
		if intent.Reason != v1alpha1.ReasonProgressing || intent.Action != reconcile.PlanBlocked || attempt == attempts {
			return intent, nil
		}
	}
}

// await adds to the intent the names of the objects that it
// waits for. Call it when coming is complete.
func await(i *reconcile.Intent, coming map[string]string) {
	if i.Action != reconcile.PlanBlocked || i.Reason != v1alpha1.ReasonDependencyNotReady {
		return
	}
	for _, key := range i.Needs {
		if who, is := coming[key]; is && !slices.Contains(i.WaitsFor, who) {
			i.WaitsFor = append(i.WaitsFor, who)
		}
	}
}

// codePlanned is the code of a refused write. No service returns it.
const codePlanned = "PLANNED"

// dial is the Dial of a plan: the client is the manager's, and
// its transport passes only reading requests.
func (p *Planner) dial(e connection.Endpoint) (connection.API, error) {
	base, err := url.Parse(e.BaseURL)
	if err != nil {
		return nil, errors.New("spec.url: not a valid URL")
	}
	transport := &http.Transport{
		Proxy:             http.ProxyFromEnvironment,
		TLSClientConfig:   &tls.Config{RootCAs: e.RootCAs, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2: true,
	}
	c, err := apiclient.New(apiclient.Options{
		BaseURL:     e.BaseURL,
		HTTPClient:  &http.Client{Transport: readOnlyTransport{next: transport, under: strings.TrimRight(base.Path, "/"), refused: p.refused}},
		Credentials: apiclient.PasswordCredentials(e.Username, e.Password),
		UserAgent:   "keyserver-operator-plan",
		MaxRetries:  connection.CallRetries,
		Timeout:     connection.CallTimeout,
		Observe:     e.Observe,
	})
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clients = append(p.clients, c)
	return unmarking{c}, nil
}

// unmarking is a service on which a plan does not set owner marks. They
// do not change the planned objects, so they are not part of the plan.
// A mark of another owner is still found, because it is read earlier.
type unmarking struct{ *apiclient.Client }

// SetOwner implements connection.API.
func (unmarking) SetOwner(_ context.Context, in schema.SetOwnerRequest) (schema.OwnerSaved, error) {
	return schema.OwnerSaved{OwnerMark: schema.OwnerMark{Kind: in.Kind, ID: in.ID, Owner: in.Owner}, Saved: true}, nil
}

// ReleaseOwner implements connection.API.
func (unmarking) ReleaseOwner(context.Context, schema.ReleaseOwnerRequest) (schema.OwnerReleased, error) {
	return schema.OwnerReleased{Gone: true}, nil
}

func (p *Planner) refused(call string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, call)
}

// readOnlyTransport passes reading requests on, and refuses and reports all others. It is below the
// client, so a call that is added to the client later is refused until it is listed as reading.
type readOnlyTransport struct {
	next    http.RoundTripper
	under   string // the path of the base URL
	refused func(call string)
}

// reads are the requests that read although their method is
// not GET, and those about the plan's own session.
var reads = []string{
	"POST /api/sessions",
	"DELETE /api/sessions/current",
	"POST /api/server/version",
	"POST /api/principals/lookup",
	"POST /api/keys/acl/get",
	"POST /api/certificates/by-subject",
	"POST /api/certificates/by-transport-principal",
}

// RoundTrip implements http.RoundTripper.
func (t readOnlyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	call := r.Method + " " + strings.TrimPrefix(r.URL.Path, t.under)
	if r.Method == http.MethodGet || slices.Contains(reads, call) {
		return t.next.RoundTrip(r)
	}
	if r.Body != nil {
		_ = r.Body.Close()
	}
	t.refused(call)
	return nil, &apiclient.Error{Code: codePlanned, Detail: "a plan does not write: " + call + " was not sent"}
}

// CloseIdleConnections is called by http.Client.
func (t readOnlyTransport) CloseIdleConnections() {
	if c, is := t.next.(interface{ CloseIdleConnections() }); is {
		c.CloseIdleConnections()
	}
}

// silent records no events.
type silent struct{}

func (silent) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}
