package reconcile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/status"
)

// reconciler makes the key server agree with the objects of one kind.
type reconciler[T Object, D any] struct {
	Cluster
	adapter     Adapter[T, D]
	kind        Kind
	api         v1beta1.Kind
	connections *connection.Connections
	sources     *sources.Reader
	timing      connection.Timing
	population  *status.Population
	failures    *failures
	// The kind as a consumer and as a provider; nil if it is none.
	dependencies *dependencies
	needs        *dependencyIndex
	provides     *dependencyIndex
	marks        *connection.Marks
	published    *published
	wake         chan event.TypedGenericEvent[Wake]
}

// pass is one run of Reconcile for one object.
type pass[T Object, D any] struct {
	log           logr.Logger
	read          T // the object as read from the API server
	obj           T // the object as it will be written
	spec          *v1beta1.ManagedSpec
	status        *v1beta1.ManagedStatus
	token         string // token of a requested reconcile that the status does not acknowledge yet
	keyServer     *v1beta1.KeyServer
	in            Input
	want          *D
	facts         Facts
	objectChanged bool // the object has changed in the meantime; decide again
	// repairs means that a write that failed in an earlier pass was to repair an outside change.
	repairs bool
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler[T, D]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ctx, span := r.Tracer.Begin(ctx, "reconcile "+r.api.Name)
	result, err := r.pass(ctx, req)
	switch {
	case err != nil:
		span.End("error") // the log has the message of the error, which may name the object
	default:
		span.End("")
	}
	return result, err
}

func (r *reconciler[T, D]) pass(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ctx = connection.For(ctx, strings.Join([]string{r.Name, req.Namespace, r.api.Name, req.Name}, "/"))
	p, d, err := r.consider(ctx, req.NamespacedName)
	if err != nil || p == nil {
		return ctrl.Result{}, err
	}
	if p.objectChanged {
		return RequeueUnless(false), nil
	}
	return r.carryOut(ctx, p, d)
}

// consider gathers the facts about an object and decides. It returns no pass if the object does not exist, or if it is
// being deleted and only has finalizers of other controllers.
func (r *reconciler[T, D]) consider(ctx context.Context, at types.NamespacedName) (*pass[T, D], Decision, error) {
	obj, found, err := r.fetch(ctx, at)
	if err != nil || !found {
		return nil, Decision{}, err
	}
	p := r.begin(ctx, obj)
	if held, err := r.restoreFinalizer(ctx, p); err != nil || !held {
		p.objectChanged = true
		return p, Decision{}, err
	}
	if err := r.gatherDeletion(ctx, p); err != nil {
		return nil, Decision{}, err
	}
	d, settled := ByObject(p.facts)
	if !settled {
		if err := r.gather(ctx, p); err != nil {
			return nil, Decision{}, err
		}
		d, _ = decide(serverRules, p.facts)
	}
	return p, d, nil
}

// carryOut carries out the decision and records the outcome.
func (r *reconciler[T, D]) carryOut(ctx context.Context, p *pass[T, D], d Decision) (ctrl.Result, error) {
	if d.Action == actRetire && !p.facts.Deleting {
		problem, err := r.republished(ctx, p)
		if err != nil {
			return ctrl.Result{}, err
		}
		if problem != nil {
			d = report(problem.Reason, "superseded objects are not removed until the publication succeeds: %s", problem.Message)
			d.RequeueAfter = retryPublication
		}
	}
	done, err := r.act(ctx, p, d)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.record(p, done)
	if !r.Identity.Planned {
		if err := r.publish(ctx, p, &done); err != nil {
			return ctrl.Result{}, err
		}
	}
	return r.finish(ctx, p, done)
}

func (r *reconciler[T, D]) fetch(ctx context.Context, at types.NamespacedName) (obj T, found bool, err error) {
	obj, _ = r.New().(T)
	err = r.Client.Get(ctx, at, obj)
	if apierrors.IsNotFound(err) {
		r.failures.forget(at)
		r.sources.Refer(r.kind.Name, at, nil)
		r.population.Move(at, "")
		expiry{}.observe(r.kind.Name, at)
		return obj, false, nil
	}
	if err != nil {
		return obj, false, fmt.Errorf("read the object: %w", err)
	}
	if !obj.GetDeletionTimestamp().IsZero() && !controllerutil.ContainsFinalizer(obj, v1beta1.FinalizerExternal) {
		return obj, false, nil // it only has finalizers of other controllers
	}
	return obj, true, nil
}

// begin starts a pass with the facts that the object itself states.
func (r *reconciler[T, D]) begin(ctx context.Context, obj T) *pass[T, D] {
	p := &pass[T, D]{log: ctrl.LoggerFrom(ctx), obj: obj}
	p.read = copyOf(obj)
	r.sources.Refer(r.kind.Name, client.ObjectKeyFromObject(obj), r.adapter.Sources(obj))
	p.spec, p.status = obj.Managed()
	if token := obj.GetAnnotations()[v1beta1.AnnotationReconcileRequestedAt]; token != p.status.LastHandledReconcileAt {
		p.token = token
	}
	now := r.Clock.Now()
	p.facts = Facts{
		Now: now, Management: p.spec.ManagementPolicy, Adoption: p.spec.AdoptionPolicy,
		Deletion: p.spec.DeletionPolicy, Resync: resyncOf(p.spec),
		Paused:     Annotated(obj, v1beta1.AnnotationPaused),
		Abandoned:  Annotated(obj, v1beta1.AnnotationAbandon),
		Deleting:   !obj.GetDeletionTimestamp().IsZero(),
		Provenance: p.status.Provenance,
	}
	// An external object that was only observed has an id in the status, but is not owned.
	if p.facts.Provenance != "" {
		p.facts.Owned = r.adapter.Owned(obj)
	}
	if ready := meta.FindStatusCondition(p.status.Conditions, v1beta1.ConditionReady); ready != nil {
		p.facts.ReadyMessage = ready.Message
	}
	// The declaration is not resolved yet, so an attempt of any declaration counts. This can only delay a release.
	p.facts.Attempted = strings.HasPrefix(obj.GetAnnotations()[v1beta1.AnnotationCreatePending], p.attempt(nil)) ||
		p.facts.Owned == "" && controllerutil.ContainsFinalizer(obj, v1beta1.FinalizerExternal)
	if rot, ok := any(r.adapter).(Rotator[T]); ok {
		for _, s := range rot.Superseded(obj) {
			p.facts.Superseded = append(p.facts.Superseded, s.Superseded)
		}
	}
	p.facts.Failures, p.facts.RetryAt = r.failures.of(obj, p.token)
	p.repairs = r.failures.repairing(obj)
	p.in = Input{
		Sources: r.sources, Cluster: r.Client, Peers: Peering{r.Cluster, r.connections},
		Issuer: r.Issuer, Now: now, NotBefore: now.Add(-p.facts.Resync), Deleting: p.facts.Deleting,
	}
	if p.token != "" {
		p.in.NotBefore = now
	}
	return p
}

// finish writes the changes and returns when to reconcile again.
func (r *reconciler[T, D]) finish(ctx context.Context, p *pass[T, D], res result) (ctrl.Result, error) {
	if res.refused {
		return RequeueUnless(false), nil
	}
	if res.done && (res.Action == ActRelease || res.Action == actDelete) {
		return r.release(ctx, p, res)
	}
	written, err := status.Patch(ctx, r.Client, p.read, p.obj)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("write the status: %w", err)
	}
	if !written {
		return RequeueUnless(written), nil
	}
	if res.Reason == v1beta1.ReasonDependencyNotReady && r.beginsToWait(p) {
		return ctrl.Result{RequeueAfter: lookAgain}, nil
	}
	if !res.done {
		return again(r.soonest(p, res.RequeueAfter), p.facts.Resync), nil
	}
	if p.facts.Deleting {
		return ctrl.Result{RequeueAfter: time.Millisecond}, nil // more external objects must be deleted
	}
	p.facts.Superseded = nil
	if rot, ok := any(r.adapter).(Rotator[T]); ok {
		for _, s := range rot.Superseded(p.obj) {
			p.facts.Superseded = append(p.facts.Superseded, s.Superseded)
		}
	}
	return again(r.soonest(p, p.facts.settle(Decision{}).RequeueAfter), p.facts.Resync), nil
}

// soonest shortens the pause if an expiry must be reported or a certificate reissued earlier.
func (r *reconciler[T, D]) soonest(p *pass[T, D], after time.Duration) time.Duration {
	times := []time.Duration{r.renewal(p.obj, p.facts.Now)}
	for _, e := range r.expiries(p.obj) {
		times = append(times, e.next(p.facts.Now))
	}
	for _, next := range times {
		if next > 0 && after > 0 {
			after = min(after, next)
		}
	}
	return after
}

// lookAgain is the pause before the second check of an object that has started to wait.
const lookAgain = 50 * time.Millisecond

// beginsToWait reports whether the status has just begun to say that the object waits, or what it waits for. Providers
// find waiting objects in the cache, which did not have this status until now. A provider that became ready in the
// meantime did not enqueue the object, so a second check is necessary. If the cache is still older at the second check,
// the status write is rejected and the check is repeated.
func (r *reconciler[T, D]) beginsToWait(p *pass[T, D]) bool {
	_, was := p.read.Managed()
	before := meta.FindStatusCondition(was.Conditions, v1beta1.ConditionReady)
	if before == nil || before.Reason != string(v1beta1.ReasonDependencyNotReady) {
		return true
	}
	return r.needs != nil && !slices.Equal(r.needs.keys(p.read), r.needs.keys(p.obj))
}

// RequeueUnless requeues after 50 ms if written is false, because the object had changed in the cluster.
func RequeueUnless(written bool) ctrl.Result {
	if written {
		return ctrl.Result{}
	}
	return ctrl.Result{RequeueAfter: 50 * time.Millisecond}
}

// release deletes the publications of a deleted object, and then removes its finalizer.
func (r *reconciler[T, D]) release(ctx context.Context, p *pass[T, D], res result) (ctrl.Result, error) {
	if res.Action == actDelete {
		r.say(p, status.DeletedEvent(p.facts.External.What, res.outcome.Evidence))
	} else {
		r.say(p, status.ReleasedEvent(res.Message))
	}
	if err := r.withdraw(ctx, p); err != nil {
		return ctrl.Result{}, err
	}
	controllerutil.RemoveFinalizer(p.obj, v1beta1.FinalizerExternal)
	written, err := status.PatchMetadata(ctx, r.Client, p.read, p.obj)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("remove the finalizer: %w", err)
	}
	if !written {
		return RequeueUnless(written), nil
	}
	p.log.Info("released", "rule", res.Rule, "message", res.Message)
	return ctrl.Result{}, nil
}

// again returns the result for a requeue after a pause. A resync gets jitter, so that objects created together are not
// checked together, and a low priority, so that it does not delay new objects.
func again(after, resync time.Duration) ctrl.Result {
	if after <= 0 {
		return ctrl.Result{}
	}
	if after < resync {
		return ctrl.Result{RequeueAfter: after}
	}
	low := handler.LowPriority
	return ctrl.Result{RequeueAfter: after + rand.N(after/10+1), Priority: &low} //nolint:gosec // jitter, not a secret
}

func (r *reconciler[T, D]) name(o T) string { return NameOf(r.kind.Name, o) }

// NameOf formats the name of an object for messages.
func NameOf(kind string, obj client.Object) string {
	return kind + " " + obj.GetNamespace() + "/" + obj.GetName()
}

func copyOf[T client.Object](obj T) T {
	c, _ := obj.DeepCopyObject().(T)
	return c
}

// Annotated reports whether an annotation is set to anything but "false".
func Annotated(obj client.Object, name string) bool {
	v, ok := obj.GetAnnotations()[name]
	return ok && v != "false"
}

const defaultResync = 10 * time.Minute

func resyncOf(spec *v1beta1.ManagedSpec) time.Duration {
	if spec.ResyncInterval == nil || spec.ResyncInterval.Duration <= 0 {
		return defaultResync
	}
	return spec.ResyncInterval.Duration
}

// older orders objects with the same claim: by age, then by name.
func older(a, b client.Object) bool {
	at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	if !at.Equal(&bt) {
		return at.Before(&bt)
	}
	return a.GetNamespace()+"/"+a.GetName() < b.GetNamespace()+"/"+b.GetName()
}
