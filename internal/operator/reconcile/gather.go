package reconcile

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
)

// gatherDeletion finds out whether the custom resource definition is being deleted, and which objects still need this
// object. If it returns an error, the object is not deleted.
func (r *reconciler[T, D]) gatherDeletion(ctx context.Context, p *pass[T, D]) (err error) {
	if !p.facts.Deleting {
		return nil
	}
	if p.facts.KindRemoved, err = r.KindRemoved(ctx, r.api.CRD()); err != nil {
		return err
	}
	if r.provides != nil {
		p.facts.Dependants, err = r.dependencies.dependants(ctx, r.provides.keys(p.obj))
	}
	return err
}

// gather runs the steps that need the key server, one after the other. If a step returns a problem, gather stops and
// the problem becomes a fact.
func (r *reconciler[T, D]) gather(ctx context.Context, p *pass[T, D]) error {
	for _, step := range []func(context.Context, *pass[T, D]) error{r.connect, r.declare, r.findSupersededOwners, r.observe, r.checkResolvedScope, r.compareClaims} {
		obstacle, err := connection.AsProblem(ctx, step(ctx, p))
		if err != nil {
			return err
		}
		if obstacle != nil {
			p.tripIfUnavailable(obstacle)
			p.facts.Problem = obstacle
			return nil
		}
	}
	r.unrecorded(p)
	return nil
}

// connect finds the KeyServer, checks its grants, and gets the connection to it.
func (r *reconciler[T, D]) connect(ctx context.Context, p *pass[T, D]) error {
	name := p.spec.KeyServerRef.Name
	ks := &v1beta1.KeyServer{}
	err := r.Client.Get(ctx, types.NamespacedName{Name: name}, ks)
	if apierrors.IsNotFound(err) {
		return connection.NewProblem(v1beta1.ReasonDependencyNotReady, "KeyServer %q does not exist", name)
	}
	if err != nil {
		return fmt.Errorf("read KeyServer %q: %w", name, err)
	}
	if !ks.DeletionTimestamp.IsZero() && !p.facts.Deleting && p.facts.Owned == "" {
		return connection.NewProblem(v1beta1.ReasonDependencyNotReady, "KeyServer %q is being deleted; no new external objects are created on it", name)
	}
	p.keyServer = ks
	if err := r.checkDeclaredScope(ctx, p); err != nil {
		return err
	}
	conn, shut := r.connections.Get(name)
	if shut != nil {
		return shut
	}
	p.in.Conn = conn
	return nil
}

// declare resolves the declaration. A deletion continues if that fails.
func (r *reconciler[T, D]) declare(ctx context.Context, p *pass[T, D]) error {
	want, err := r.adapter.Declared(ctx, p.in, p.obj)
	if err == nil {
		p.want = &want
	} else if !p.facts.Deleting {
		return err
	}
	p.facts.Attempted = p.want != nil &&
		p.obj.GetAnnotations()[v1beta1.AnnotationCreatePending] == p.attempt(r.adapter.Claims(p.obj, p.want))
	return nil
}

// findSupersededOwners finds out whether another object claims or owns an
// external object that a rotation has replaced.
func (r *reconciler[T, D]) findSupersededOwners(ctx context.Context, p *pass[T, D]) error {
	rot, ok := any(r.adapter).(Rotator[T])
	if !ok {
		return nil
	}
	for i, s := range rot.Superseded(p.obj) {
		others, err := r.claimants(ctx, p, []string{s.Claim})
		if err != nil {
			return err
		}
		if len(others) > 0 {
			p.facts.Superseded[i].ClaimedBy = r.name(others[0].object)
			continue
		}
		o, err := r.owns(ctx, p, External{Exists: true, ID: s.ID})
		if err != nil {
			return err
		}
		if o.ownedByOther() {
			p.facts.Superseded[i].ClaimedBy = o.Holder
		}
	}
	p.in.Superseded = p.facts.Superseded
	return nil
}

func (r *reconciler[T, D]) observe(ctx context.Context, p *pass[T, D]) (err error) {
	p.in.marked = func(ctx context.Context) (string, bool, error) { return r.markedFor(ctx, p) }
	p.facts.External, err = r.adapter.Observe(ctx, p.in, p.obj, p.want)
	if err != nil {
		return err
	}
	if by, stepwise := any(r.adapter).(Stepwise); stepwise {
		p.facts.NeedsOnlyAdditions = by.NeedsOnlyAdditions(p.facts.External)
	}
	if p.facts.Ownership, err = r.owns(ctx, p, p.facts.External); err != nil {
		return err
	}
	if p.facts.MarksSupported { // the mark proves who created it; the annotation does not, because users can set it
		p.facts.Attempted = false
	}
	if p.facts.Owned == "" {
		p.facts.Provenance = p.facts.provenance()
	}
	return nil
}

// compareClaims looks for other objects with the same claims, to find a conflicting owner and a new owner.
func (r *reconciler[T, D]) compareClaims(ctx context.Context, p *pass[T, D]) error {
	claims := r.adapter.Claims(p.obj, p.want)
	others, err := r.claimants(ctx, p, claims)
	if err != nil {
		return err
	}
	for _, o := range others {
		spec, _ := o.object.Managed()
		// The owner according to the mark keeps the external object, unless the other object has further claims.
		keeps := p.facts.ownedBySelf() && !slices.ContainsFunc(r.adapter.Claims(o.object, nil), func(c string) bool { return !slices.Contains(claims, c) })
		if p.facts.ConflictingOwner == "" && !keeps && older(o.object, p.obj) {
			p.facts.ConflictingOwner = r.name(o.object)
		}
		if p.facts.NewOwner == "" && o.object.GetDeletionTimestamp().IsZero() && spec.AdoptionPolicy != v1beta1.AdoptNever && o.adopts && couldInherit(o.object) {
			p.facts.NewOwner = r.name(o.object)
		}
	}
	return nil
}

// couldInherit reports whether an object would take over the external object if it were free. A paused object or an
// object that waits for something else would not, and the external object would have no owner.
func couldInherit(obj Object) bool {
	_, status := obj.Managed()
	ready := meta.FindStatusCondition(status.Conditions, v1beta1.ConditionReady)
	return !Annotated(obj, v1beta1.AnnotationPaused) &&
		(ready == nil || ready.Status == metav1.ConditionTrue || ready.Reason == string(v1beta1.ReasonConflict))
}

// claimant is another object with a common claim.
type claimant[T Object] struct {
	object T
	adopts bool // its grant allows adoption
}

// claimants returns the other objects that have one of the claims and that a grant covers.
func (r *reconciler[T, D]) claimants(ctx context.Context, p *pass[T, D], claims []string) ([]claimant[T], error) {
	var others []claimant[T]
	for _, c := range claims {
		found, err := r.list(ctx, client.MatchingFields{claimIndex: IndexKey(p.spec.KeyServerRef.Name, c)})
		if err != nil {
			return nil, err
		}
		for _, o := range found {
			if o.GetUID() == p.obj.GetUID() {
				continue
			}
			is, adopts, err := r.covered(ctx, p, o)
			if err != nil {
				return nil, err
			}
			if is {
				others = append(others, claimant[T]{o, adopts})
			}
		}
	}
	return others, nil
}
