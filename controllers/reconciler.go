package controllers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
)

// reconciler makes the key server agree with the objects of one kind.
type reconciler[T managed, D any] struct {
	cluster
	adapter     adapter[T, D]
	kind        kind[T]
	connections *connections
	sources     *sources
	timing      timing
	population  *population
	failures    *failures
	wake        chan event.TypedGenericEvent[types.NamespacedName]
}

// pass is one walk of Reconcile over one object.
type pass[T managed, D any] struct {
	log       logr.Logger
	read      T // as the API server has it
	obj       T // as it is to be written
	spec      *v1alpha1.ManagedSpec
	status    *v1alpha1.ManagedStatus
	token     string // of a requested reconcile that is not acknowledged yet
	keyServer *v1alpha1.KeyServer
	in        input
	want      *D
	facts     facts
}

// result is what became of a decision.
type result struct {
	decision
	outcome outcome
	done    bool     // the action took effect and was read back
	failed  *problem // it did not
	refused bool     // the object has changed in the cluster; decide anew
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler[T, D]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj, found, err := r.fetch(ctx, req)
	if err != nil || !found {
		return ctrl.Result{}, err
	}
	p := r.begin(ctx, obj)
	if err := r.gatherDeletion(ctx, p); err != nil {
		return ctrl.Result{}, err
	}
	d, settled := decide(objectRules, p.facts)
	if !settled {
		if err := r.gather(ctx, p); err != nil {
			return ctrl.Result{}, err
		}
		d, _ = decide(serverRules, p.facts)
	}
	done, err := r.act(ctx, p, d)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.record(p, done)
	return r.finish(ctx, p, done)
}

func (r *reconciler[T, D]) fetch(ctx context.Context, req ctrl.Request) (obj T, found bool, err error) {
	obj = r.kind.New()
	err = r.client.Get(ctx, req.NamespacedName, obj)
	if apierrors.IsNotFound(err) {
		r.failures.forget(req.NamespacedName)
		r.population.move(req.NamespacedName, "")
		return obj, false, nil
	}
	if err != nil {
		return obj, false, fmt.Errorf("read the object: %w", err)
	}
	if !obj.GetDeletionTimestamp().IsZero() && !controllerutil.ContainsFinalizer(obj, v1alpha1.FinalizerExternal) {
		return obj, false, nil // held by somebody else
	}
	return obj, true, nil
}

// begin notes what the object itself says.
func (r *reconciler[T, D]) begin(ctx context.Context, obj T) *pass[T, D] {
	p := &pass[T, D]{log: ctrl.LoggerFrom(ctx), obj: obj}
	p.read = copyOf(obj)
	p.spec, p.status = obj.Managed()
	if token := obj.GetAnnotations()[v1alpha1.AnnotationReconcileRequestedAt]; token != p.status.LastHandledReconcileAt {
		p.token = token
	}
	now := r.clock.Now()
	p.facts = facts{
		Now: now, Management: p.spec.ManagementPolicy, Adoption: p.spec.AdoptionPolicy,
		Deletion: p.spec.DeletionPolicy, Resync: resyncOf(p.spec),
		Paused:     annotated(obj, v1alpha1.AnnotationPaused),
		Abandoned:  annotated(obj, v1alpha1.AnnotationAbandon),
		Deleting:   !obj.GetDeletionTimestamp().IsZero(),
		Owned:      r.adapter.Owned(obj),
		Provenance: p.status.Provenance,
	}
	// Before the declaration is resolved, an attempt at anything counts: it
	// only keeps the object from being let go too early.
	p.facts.Attempted = strings.HasPrefix(obj.GetAnnotations()[v1alpha1.AnnotationCreatePending], p.attempt(nil))
	if rot, ok := any(r.adapter).(rotator[T]); ok {
		for _, s := range rot.Superseded(obj) {
			p.facts.Superseded = append(p.facts.Superseded, s.superseded)
		}
	}
	p.facts.Failures, p.facts.RetryAt = r.failures.of(obj, p.token)
	p.in = input{Sources: r.sources, NotBefore: now.Add(-p.facts.Resync), Deleting: p.facts.Deleting}
	if p.token != "" {
		p.in.NotBefore = now
	}
	return p
}

// gatherDeletion finds out whether the whole kind is being removed. It must
// know: an unanswered question keeps the object.
func (r *reconciler[T, D]) gatherDeletion(ctx context.Context, p *pass[T, D]) (err error) {
	if p.facts.Deleting {
		p.facts.KindRemoved, err = r.kindRemoved(ctx, r.kind.CRD)
	}
	return err
}

// gather asks the key server, one step after the other. The first obstacle
// ends it and becomes a fact itself.
func (r *reconciler[T, D]) gather(ctx context.Context, p *pass[T, D]) error {
	for _, step := range []func(context.Context, *pass[T, D]) error{r.connect, r.declare, r.observe, r.weigh} {
		obstacle, err := asProblem(ctx, step(ctx, p))
		if err != nil {
			return err
		}
		if obstacle != nil {
			p.tripIfUnavailable(obstacle)
			p.facts.Obstacle = obstacle
			return nil
		}
	}
	return nil
}

// connect resolves the KeyServer and passes its gate.
func (r *reconciler[T, D]) connect(ctx context.Context, p *pass[T, D]) error {
	name := p.spec.KeyServerRef.Name
	ks := &v1alpha1.KeyServer{}
	err := r.client.Get(ctx, types.NamespacedName{Name: name}, ks)
	if apierrors.IsNotFound(err) {
		return newProblem(v1alpha1.ReasonDependencyNotReady, "KeyServer %q does not exist", name)
	}
	if err != nil {
		return fmt.Errorf("read KeyServer %q: %w", name, err)
	}
	p.keyServer = ks
	allowed, err := r.allowed(ctx, ks, p.obj.GetNamespace())
	if err != nil {
		return err
	}
	if !allowed {
		return newProblem(v1alpha1.ReasonInvalidSpec,
			"namespace %q may not use KeyServer %q; its spec.allowedNamespaces says which may", p.obj.GetNamespace(), name)
	}
	conn, shut := r.connections.get(name)
	if shut != nil {
		return shut
	}
	p.in.Conn = conn
	return nil
}

// declare resolves what the object declares. A deletion goes on without it.
func (r *reconciler[T, D]) declare(ctx context.Context, p *pass[T, D]) error {
	want, err := r.adapter.Declared(ctx, p.in, p.obj)
	if err == nil {
		p.want = &want
	} else if !p.facts.Deleting {
		return err
	}
	p.facts.Attempted = p.want != nil &&
		p.obj.GetAnnotations()[v1alpha1.AnnotationCreatePending] == p.attempt(r.adapter.Claims(p.obj, p.want))
	return nil
}

func (r *reconciler[T, D]) observe(ctx context.Context, p *pass[T, D]) (err error) {
	p.facts.External, err = r.adapter.Observe(ctx, p.in, p.obj, p.want)
	return err
}

// weigh compares the object's claims with those of others.
func (r *reconciler[T, D]) weigh(ctx context.Context, p *pass[T, D]) error {
	others, err := r.claimants(ctx, p, r.adapter.Claims(p.obj, p.want))
	if err != nil {
		return err
	}
	for _, o := range others {
		spec, _ := o.Managed()
		if p.facts.Rival == "" && older(o, p.obj) {
			p.facts.Rival = r.name(o)
		}
		if p.facts.Heir == "" && o.GetDeletionTimestamp().IsZero() && spec.AdoptionPolicy != v1alpha1.AdoptNever {
			p.facts.Heir = r.name(o)
		}
	}
	rot, ok := any(r.adapter).(rotator[T])
	if !ok {
		return nil
	}
	for i, s := range rot.Superseded(p.obj) {
		others, err := r.claimants(ctx, p, []string{s.Claim})
		if err != nil {
			return err
		}
		if len(others) > 0 {
			p.facts.Superseded[i].ClaimedBy = r.name(others[0])
		}
	}
	return nil
}

// claimants returns the other objects that make one of the claims and are
// allowed to.
func (r *reconciler[T, D]) claimants(ctx context.Context, p *pass[T, D], claims []string) ([]T, error) {
	var others []T
	for _, c := range claims {
		found, err := r.list(ctx, client.MatchingFields{claimIndex: indexKey(p.spec.KeyServerRef.Name, c)})
		if err != nil {
			return nil, err
		}
		for _, o := range found {
			if o.GetUID() == p.obj.GetUID() {
				continue
			}
			allowed, err := r.allowed(ctx, p.keyServer, o.GetNamespace())
			if err != nil {
				return nil, err
			}
			if allowed {
				others = append(others, o)
			}
		}
	}
	return others, nil
}

// act does what was decided.
func (r *reconciler[T, D]) act(ctx context.Context, p *pass[T, D], d decision) (result, error) {
	p.log.V(1).Info("decided", "rule", d.Rule, "action", d.Action, "reason", d.Reason)
	conn := p.in.Conn
	switch d.Action {
	case actCreate:
		return r.write(ctx, p, d, func() (outcome, error) { return r.adapter.Create(ctx, conn, *p.want) })
	case actUpdate:
		return r.write(ctx, p, d, func() (outcome, error) { return r.adapter.Update(ctx, conn, *p.want, p.facts.External) })
	case actDelete, actRetire:
		return r.write(ctx, p, d, func() (outcome, error) { return r.adapter.Delete(ctx, conn, d.Target) })
	case actAdopt:
		held, err := r.hold(ctx, p, false)
		return result{decision: d, done: held, refused: !held, outcome: outcome{ID: p.facts.External.ID, Evidence: p.facts.External.Evidence}}, err
	case actForget, actRelease:
		return result{decision: d, done: true}, nil
	default:
		return result{decision: d}, nil
	}
}

// write sends one verified write and accounts for its failure.
func (r *reconciler[T, D]) write(ctx context.Context, p *pass[T, D], d decision, send func() (outcome, error)) (result, error) {
	if !p.facts.Deleting {
		held, err := r.hold(ctx, p, d.Action == actCreate)
		if err != nil || !held {
			return result{decision: d, refused: !held}, err
		}
	}
	var out outcome
	var err error
	p.in.Conn.write(func() { out, err = send() })
	if err == nil || (d.deletes() && isGone(err)) {
		r.failures.forget(client.ObjectKeyFromObject(p.obj))
		if err != nil {
			out.Evidence = "the key server no longer had it"
		}
		return result{decision: d, done: true, outcome: out}, nil
	}
	failed, other := asProblem(ctx, err)
	if failed == nil {
		return result{}, other
	}
	p.log.Info("a write failed", "action", d.Action, "cause", err.Error())
	p.tripIfUnavailable(failed)
	if failed.Outdated {
		p.in.Conn.outdated(r.kind.Feed)
		// What is there was not made by this attempt.
		if err := r.unmark(ctx, p); err != nil {
			return result{}, err
		}
	}
	retryIn := r.failures.add(p.obj, p.token, r.clock.Now(), r.timing)
	d = report(failed.Reason, "%s", failed.Message)
	d.Again = retryIn
	return result{decision: d, failed: failed}, nil
}

// hold puts the finalizer on the object before anything outside is made for
// it, and with it the mark of an attempted creation. It answers false where
// the object has changed meanwhile.
func (r *reconciler[T, D]) hold(ctx context.Context, p *pass[T, D], creating bool) (bool, error) {
	controllerutil.AddFinalizer(p.obj, v1alpha1.FinalizerExternal)
	if creating {
		annotations := p.obj.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[v1alpha1.AnnotationCreatePending] = p.attempt(r.adapter.Claims(p.obj, p.want))
		p.obj.SetAnnotations(annotations)
	}
	return r.rewrite(ctx, p)
}

// unmark takes the mark of an attempted creation off again.
func (r *reconciler[T, D]) unmark(ctx context.Context, p *pass[T, D]) error {
	annotations := p.obj.GetAnnotations()
	if _, marked := annotations[v1alpha1.AnnotationCreatePending]; !marked {
		return nil
	}
	delete(annotations, v1alpha1.AnnotationCreatePending)
	p.obj.SetAnnotations(annotations)
	_, err := r.rewrite(ctx, p)
	return err
}

func (r *reconciler[T, D]) rewrite(ctx context.Context, p *pass[T, D]) (bool, error) {
	written, err := patchMetadata(ctx, r.client, p.read, p.obj)
	p.read = copyOf(p.obj)
	return written, err
}

// record turns the result into status and events.
func (r *reconciler[T, D]) record(p *pass[T, D], res result) {
	now := stamp(r.clock.Now())
	switch {
	case res.refused, res.Action == actWait, res.done && (res.Action == actRelease || res.Action == actDelete):
		return
	case res.Reason == v1alpha1.ReasonPaused:
		pause(&p.status.Conditions, p.obj.GetGeneration(), now, res.Message)
		r.population.move(client.ObjectKeyFromObject(p.obj), string(res.Reason))
		return
	}
	seen := p.facts.External
	before := meta.FindStatusCondition(p.status.Conditions, v1alpha1.ConditionReady)
	wasVerified := before != nil && before.Status == metav1.ConditionTrue && p.status.ObservedGeneration == p.obj.GetGeneration()
	if res.done {
		seen = r.recordDone(p, res, seen)
		res.Reason, res.Message = v1alpha1.ReasonVerified, res.sentence()
	}
	owner := seen.Exists && (res.done || p.facts.Management == v1alpha1.Observe || seen.ID == p.facts.Owned)
	if p.facts.Obstacle == nil {
		r.adapter.Record(p.obj, p.want, seen, owner, now.Time)
		p.status.Drift = seen.Drift
		if !seen.Exists && res.Reason == v1alpha1.ReasonDrifted {
			p.status.Drift = []v1alpha1.FieldDrift{{Field: "exists", Declared: "true", Observed: "false"}}
		}
		if p.token != "" {
			p.status.LastHandledReconcileAt = p.token
		}
	}
	// What the last write has shown stays in the message while it holds.
	if res.Reason == v1alpha1.ReasonVerified && !res.done && wasVerified && p.token == "" {
		res.Message = before.Message
	} else if res.Reason == v1alpha1.ReasonVerified {
		p.status.LastVerifiedTime = &now
	}
	r.announce(p, res, before, wasVerified)
	p.status.ObservedGeneration = p.obj.GetGeneration()
	conclude(&p.status.Conditions, p.obj.GetGeneration(), now, conclusion{
		Reason: res.Reason, Message: res.Message, Exhausted: r.failures.exhausted(p.obj),
	})
	r.population.move(client.ObjectKeyFromObject(p.obj), string(res.Reason))
}

// recordDone notes what an action has changed, and returns what is there now.
func (r *reconciler[T, D]) recordDone(p *pass[T, D], res result, seen external) external {
	rot, rotates := any(r.adapter).(rotator[T])
	if rotates && !res.deletes() && res.Action != actForget && seen.Replaces != "" && res.outcome.ID != p.facts.Owned {
		rot.Supersede(p.obj, supersededClaim{
			superseded: superseded{ID: p.facts.Owned, Provenance: p.status.Provenance},
			Claim:      seen.Replaces,
		}, p.facts.Now)
	}
	switch res.Action {
	case actCreate:
		p.status.Provenance = v1alpha1.Created
	case actAdopt, actUpdate:
		switch {
		case p.facts.External.ID == p.facts.Owned:
		case p.facts.Attempted && len(p.facts.External.Drift) == 0:
			p.status.Provenance = v1alpha1.Created
		default:
			p.status.Provenance = v1alpha1.Adopted
			for _, s := range p.facts.Superseded {
				if s.ID == p.facts.External.ID {
					p.status.Provenance = s.Provenance
				}
			}
		}
	default: // Retire, Forget: about another external object
		if rotates {
			rot.Struck(p.obj, res.Target)
		}
		return seen
	}
	seen.Exists, seen.ID, seen.Drift = true, res.outcome.ID, nil
	return seen
}

// sentence is what the conditions say after a verified write.
func (res result) sentence() string {
	verb := map[action]string{
		actCreate: "created", actUpdate: "corrected", actAdopt: "took over",
		actRetire: "removed the superseded " + res.Target,
	}[res.Action]
	if verb == "" {
		return res.Message
	}
	return verb + ": " + res.outcome.Evidence
}

// announce records events and metrics for what has changed.
func (r *reconciler[T, D]) announce(p *pass[T, D], res result, before *metav1.Condition, wasVerified bool) {
	drifted := wasVerified && !p.facts.External.Renewed &&
		(res.Action == actCreate || res.Action == actUpdate || res.Reason == v1alpha1.ReasonDrifted)
	if drifted {
		driftFound.WithLabelValues(r.kind.Name).Inc()
		r.say(p, driftFoundEvent(p.facts.External.What, difference(p.facts.External)))
	}
	switch {
	case res.done && res.Action == actCreate:
		r.say(p, createdEvent(p.facts.External.What, res.outcome.Evidence))
	case res.done && res.Action == actAdopt:
		r.say(p, adoptedEvent(p.facts.External.What, res.outcome.Evidence))
	case res.done && res.Action == actUpdate:
		r.say(p, updatedEvent(p.facts.External.What, p.facts.fields(), res.outcome.Evidence))
	case res.done && res.Action == actRetire:
		r.say(p, retiredEvent(res.Target, res.outcome.Evidence))
	case res.done:
		r.say(p, forgottenEvent(res.Message))
	case notable(res.Reason, p.facts.Deleting) && (before == nil || before.Reason != string(res.Reason) ||
		(p.facts.Deleting && before.Message != res.Message)):
		r.say(p, reasonEvent(res.Reason, p.facts.Deleting, res.Message))
	}
	if drifted && res.done {
		driftRepaired.WithLabelValues(r.kind.Name).Inc()
	}
	if res.Reason == v1alpha1.ReasonVerified && (before == nil || before.Status != metav1.ConditionTrue) {
		since := p.obj.GetCreationTimestamp().Time
		if before != nil {
			since = before.LastTransitionTime.Time
		}
		timeToVerified.WithLabelValues(r.kind.Name).Observe(r.clock.Since(since).Seconds())
	}
}

// notable says which states are worth an event on each object. That a key
// server is down is said once, on the KeyServer, unless it holds a deletion.
func notable(reason v1alpha1.Reason, deleting bool) bool {
	switch reason {
	case v1alpha1.ReasonVerified, v1alpha1.ReasonProgressing:
		return false
	case v1alpha1.ReasonKeyServerUnavailable:
		return deleting
	default:
		return true
	}
}

func difference(e external) string {
	if !e.Exists {
		return "it is gone"
	}
	parts := make([]string, len(e.Drift))
	for i, d := range e.Drift {
		parts[i] = fmt.Sprintf("%s is %q, declared is %q", d.Field, clip(d.Observed, 200), clip(d.Declared, 200))
	}
	return strings.Join(parts, "; ")
}

// finish writes what has changed and says when to come back.
func (r *reconciler[T, D]) finish(ctx context.Context, p *pass[T, D], res result) (ctrl.Result, error) {
	if res.refused {
		return soonUnless(false), nil
	}
	if res.done && (res.Action == actRelease || res.Action == actDelete) {
		return r.release(ctx, p, res)
	}
	written, err := patchStatus(ctx, r.client, p.read, p.obj)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("write the status: %w", err)
	}
	if !written {
		return soonUnless(written), nil
	}
	if !res.done {
		return again(res.Again, p.facts.Resync), nil
	}
	if p.facts.Deleting {
		return ctrl.Result{RequeueAfter: time.Millisecond}, nil // more to delete
	}
	p.facts.Superseded = nil
	if rot, ok := any(r.adapter).(rotator[T]); ok {
		for _, s := range rot.Superseded(p.obj) {
			p.facts.Superseded = append(p.facts.Superseded, s.superseded)
		}
	}
	return again(p.facts.settle(decision{}).Again, p.facts.Resync), nil
}

// soonUnless comes back in a moment if the object had changed in the cluster
// and so could not be written.
func soonUnless(written bool) ctrl.Result {
	if written {
		return ctrl.Result{}
	}
	return ctrl.Result{RequeueAfter: 50 * time.Millisecond}
}

// release lets a deleted object go.
func (r *reconciler[T, D]) release(ctx context.Context, p *pass[T, D], res result) (ctrl.Result, error) {
	if res.Action == actDelete {
		r.say(p, deletedEvent(p.facts.External.What, res.outcome.Evidence))
	} else {
		r.say(p, releasedEvent(res.Message))
	}
	controllerutil.RemoveFinalizer(p.obj, v1alpha1.FinalizerExternal)
	written, err := patchMetadata(ctx, r.client, p.read, p.obj)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("remove the finalizer: %w", err)
	}
	if !written {
		return soonUnless(written), nil
	}
	p.log.Info("released", "rule", res.Rule, "message", res.Message)
	return ctrl.Result{}, nil
}

// again comes back after a time. A resync is jittered, so that objects made
// together do not come back together, and of low priority, so that it never
// keeps a new object waiting.
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

func (r *reconciler[T, D]) say(p *pass[T, D], h happening) { h.record(r.recorder, p.obj) }

func (r *reconciler[T, D]) name(o T) string {
	return r.kind.Name + " " + o.GetNamespace() + "/" + o.GetName()
}

// attempt spells the mark of an attempted creation. It is bound to the object,
// to what it owned at the time and to what it declared, so that neither a copy
// of the manifest nor a later declaration inherits it. Without claims it is
// the prefix that every such mark has.
func (p *pass[T, D]) attempt(claims []string) string {
	mark := string(p.obj.GetUID()) + "/" + p.facts.Owned + "/"
	if claims == nil {
		return mark
	}
	sum := sha256.Sum256([]byte(strings.Join(claims, "\n")))
	return mark + hex.EncodeToString(sum[:8])
}

func (p *pass[T, D]) tripIfUnavailable(why *problem) {
	if why.Reason == v1alpha1.ReasonKeyServerUnavailable && p.in.Conn != nil {
		p.in.Conn.trip(why)
	}
}

func (d decision) deletes() bool { return d.Action == actDelete || d.Action == actRetire }

func copyOf[T client.Object](obj T) T {
	c, _ := obj.DeepCopyObject().(T)
	return c
}

// annotated reports whether an annotation is set to anything but "false".
func annotated(obj client.Object, name string) bool {
	v, ok := obj.GetAnnotations()[name]
	return ok && v != "false"
}

const defaultResync = 10 * time.Minute

func resyncOf(spec *v1alpha1.ManagedSpec) time.Duration {
	if spec.ResyncInterval == nil || spec.ResyncInterval.Duration <= 0 {
		return defaultResync
	}
	return spec.ResyncInterval.Duration
}

// older orders objects that claim the same: by age, then by name.
func older(a, b client.Object) bool {
	at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	if !at.Equal(&bt) {
		return at.Before(&bt)
	}
	return a.GetNamespace()+"/"+a.GetName() < b.GetNamespace()+"/"+b.GetName()
}
