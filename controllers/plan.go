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

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	apiclient "github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
)

// PlanOptions are the inputs of a plan.
type PlanOptions struct {
	// Client has the objects and the Kubernetes objects to which they refer. The reconcilers write to Client. The caller
	// must provide a client that does not write to the cluster.
	Client  client.Client
	Indexer client.FieldIndexer
	Log     logr.Logger
	// Issuer reads the cluster's issuer. It is nil without a cluster.
	Issuer *sources.Issuer
	// Clock is the system clock if it is nil.
	Clock clock.Clock
}

// Planner runs one pass of the manager's reconcilers for each object, with connections that block all writes.
type Planner struct {
	registry   *reconcile.Registry
	keyServers *keyServerReconciler
	log        logr.Logger
	settled    chan struct{}

	mu      sync.Mutex
	calls   []string // writes that were blocked during the present pass
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
		_ = c.Logout(ctx) // the session expires anyway
		c.CloseIdleConnections()
	}
}

// Connect connects to a KeyServer. It returns an error if the connection fails. A paused KeyServer is no error, because
// the plans of its objects report it.
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
	// The second Reconcile writes the state of the connection to the status.
	if _, err := p.keyServers.Reconcile(ctx, request); err != nil {
		return fmt.Errorf("KeyServer %q: %w", name, err)
	}
	if _, why := p.registry.Connections.Get(name); why == nil {
		return nil // the status may have another problem, such as a deletion
	}
	ks := &v1beta1.KeyServer{}
	if err := p.registry.Client.Get(ctx, request.NamespacedName, ks); err != nil {
		return err
	}
	ready := meta.FindStatusCondition(ks.Status.Conditions, v1beta1.ConditionReady)
	if ready != nil && ready.Reason != string(v1beta1.ReasonPaused) {
		return fmt.Errorf("KeyServer %q is not ready: %s: %s", name, ready.Reason, ready.Message)
	}
	return nil
}

// Peer returns the name of an object's peer KeyServer, or "". The peer does not have to respond: the last trust info
// may be enough.
func (p *Planner) Peer(obj client.Object) string {
	for _, c := range p.registry.Controllers {
		if c.Has(obj) {
			return c.Peer(obj)
		}
	}
	return ""
}

// Plan runs one pass for each object and returns one intent for each. The intents are sorted by kind, and needed kinds
// come first. Call Connect for the KeyServers of the objects earlier.
func (p *Planner) Plan(ctx context.Context, objects []client.Object) ([]reconcile.Intent, error) {
	ctx = ctrl.LoggerInto(ctx, p.log)
	intents := make([]reconcile.Intent, 0, len(objects))
	// coming maps each key that the plan will provide to the object that provides it.
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

// look runs a pass for one object. It repeats the pass if the problem is temporary, for example if a list changed
// during its read.
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
		if intent.Reason != v1beta1.ReasonProgressing || intent.Action != reconcile.PlanBlocked || attempt == attempts {
			return intent, nil
		}
	}
}

// await sets WaitsFor of the intent: the names of the planned objects that provide its needs. coming must be complete.
func await(i *reconcile.Intent, coming map[string]string) {
	if i.Action != reconcile.PlanBlocked || i.Reason != v1beta1.ReasonDependencyNotReady {
		return
	}
	for _, key := range i.Needs {
		if who, is := coming[key]; is && !slices.Contains(i.WaitsFor, who) {
			i.WaitsFor = append(i.WaitsFor, who)
		}
	}
}

// codePlanned is the error code of a blocked write. No key server returns it.
const codePlanned = "PLANNED"

// dial is the Dial of a plan. It returns the manager's client with a transport that sends only read requests.
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

// unmarking is an API that does not set owner marks. Marks do not change the planned objects, so a plan leaves them
// out. A mark of another owner is still found, because marks are read.
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

// readOnlyTransport sends read requests, and blocks and reports all others. It does not depend on the methods of the
// client, so it also blocks a new write method.
type readOnlyTransport struct {
	next    http.RoundTripper
	under   string // the path of the base URL
	refused func(call string)
}

// reads are the read requests whose method is not GET, and the requests for the plan's own session.
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
