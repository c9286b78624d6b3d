package reconcile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/status"
)

// result is the outcome of a decision that was carried out.
type result struct {
	Decision
	outcome       Outcome
	done          bool   // the action took effect and a second read confirmed it
	partlyCreated bool   // the creation took effect, but not completely
	refused       bool   // the object or its owner mark has changed in the meantime; decide again
	tried         Action // the failed action, if the decision reports its failure
}

// act carries out a decision.
func (r *reconciler[T, D]) act(ctx context.Context, p *pass[T, D], d Decision) (result, error) {
	p.log.V(1).Info("decided", "rule", d.Rule, "action", d.Action, "reason", d.Reason)
	conn := p.in.Conn
	switch d.Action {
	case actCreate:
		return r.write(ctx, p, d, func() (Outcome, error) { return r.create(ctx, p) })
	case actUpdate:
		return r.write(ctx, p, d, func() (Outcome, error) {
			if err := r.claim(ctx, p, d); err != nil {
				return Outcome{}, err
			}
			return r.adapter.Update(ctx, conn, *p.want, p.facts.External)
		})
	case actDelete, actRetire:
		return r.write(ctx, p, d, func() (Outcome, error) {
			out, err := r.adapter.Delete(ctx, conn, p.obj, d.Target)
			if _, lasts := any(r.adapter).(Lasting); lasts && err == nil {
				return out, r.removeMark(ctx, p, d.Target)
			}
			if err == nil {
				r.marks.Of(conn).Drop(d.Target) // the key server has deleted the mark, too
			}
			return out, err
		})
	case actAdopt, actClaim:
		res, err := r.write(ctx, p, d, func() (Outcome, error) {
			return Outcome{ID: p.facts.External.ID, Evidence: p.facts.External.Evidence}, r.claim(ctx, p, d)
		})
		res.done = res.done && d.Action == actAdopt // a claim changes only the mark
		return res, err
	case actForget:
		d.Message += r.removeMarks(ctx, p, d.Target)
		return result{Decision: d, done: true}, nil
	case ActRelease:
		if !p.facts.KindRemoved { // the marks of a removed kind stay, so that a new installation finds its external objects
			d.Message += r.removeMarks(ctx, p, p.leaves()...)
		}
		return result{Decision: d, done: true}, nil
	default:
		if p.facts.Management == v1beta1.Observe && p.facts.ownedBySelf() {
			d.Message += r.removeMarks(ctx, p, p.facts.External.ID)
		}
		return r.removeUnusedFinalizer(ctx, p, d)
	}
}

// write sends one verified write. If the write fails, the result has the reason and the pause before the retry.
func (r *reconciler[T, D]) write(ctx context.Context, p *pass[T, D], d Decision, send func() (Outcome, error)) (result, error) {
	if !p.facts.Deleting {
		held, err := r.addFinalizer(ctx, p, d.Action == actCreate)
		if err != nil || !held {
			return result{Decision: d, refused: !held}, err
		}
	}
	var out Outcome
	var err error
	p.in.Conn.Write(func() { out, err = send() })
	if err == nil && out.Unfinished != nil {
		return r.unfinished(ctx, p, d, out), nil //nolint:nilerr // the result reports the error
	}
	if err == nil || (d.deletes() && connection.IsGone(err)) {
		r.failures.forget(client.ObjectKeyFromObject(p.obj))
		if err != nil {
			out.Evidence = "the key server no longer had it"
			r.outdated(p)
		}
		return result{Decision: d, done: true, outcome: out}, nil
	}
	failed, other := connection.AsProblem(ctx, err)
	if failed == nil {
		return result{}, other
	}
	p.log.Info("a write failed", "action", d.Action, "cause", err.Error())
	p.tripIfUnavailable(failed)
	if failed.Outdated {
		r.outdated(p)
		// Another client has created the existing object, not this attempt.
		if _, err := r.unmark(ctx, p); err != nil {
			return result{}, err
		}
	}
	tried := d.Action
	retryIn := r.failures.add(p.obj, p.token, p.drifted(tried), r.Clock.Now(), r.timing)
	d = report(failed.Reason, "%s", failed.Message)
	if p.facts.Deleting {
		d.Message = waits(failed.Message)
	}
	d.RequeueAfter = retryIn
	return result{Decision: d, tried: tried}, nil
}

// unfinished handles a creation that took effect only in part. It records the created part, also if the error did not
// come from the key server.
func (r *reconciler[T, D]) unfinished(ctx context.Context, p *pass[T, D], d Decision, out Outcome) result {
	why, other := connection.AsProblem(ctx, out.Unfinished)
	if other != nil {
		why = connection.NewProblem(v1beta1.ReasonProgressing, "%s", other)
	}
	p.log.Info("a creation is incomplete", "cause", out.Unfinished.Error())
	p.tripIfUnavailable(why)
	d.Reason, d.Message = why.Reason, "created "+p.facts.External.What+", but not completely: "+why.Message
	d.RequeueAfter = r.failures.add(p.obj, p.token, p.drifted(d.Action), r.Clock.Now(), r.timing)
	return result{Decision: d, outcome: out, partlyCreated: true}
}

// addFinalizer adds the finalizer to the object before its external object is created. For a creation, it also adds the
// annotation of the attempt. It returns false if the object has changed in the meantime.
func (r *reconciler[T, D]) addFinalizer(ctx context.Context, p *pass[T, D], creating bool) (bool, error) {
	controllerutil.AddFinalizer(p.obj, v1beta1.FinalizerExternal)
	if p.facts.MarksSupported { // with owner marks, the mark identifies the creator, and the annotation is not needed
		return r.unmark(ctx, p)
	}
	if creating {
		annotations := p.obj.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[v1beta1.AnnotationCreatePending] = p.attempt(r.adapter.Claims(p.obj, p.want))
		p.obj.SetAnnotations(annotations)
	}
	return r.rewrite(ctx, p)
}

// removeUnusedFinalizer removes the finalizer if a creation failed because another owner's external object exists, and
// this object owns nothing else. Without the finalizer, a deletion of this object does not wait for the key server.
func (r *reconciler[T, D]) removeUnusedFinalizer(ctx context.Context, p *pass[T, D], d Decision) (result, error) {
	res := result{Decision: d}
	if !p.facts.ownsNothing() || !controllerutil.ContainsFinalizer(p.obj, v1beta1.FinalizerExternal) {
		return res, nil
	}
	if pub, is := any(r.adapter).(Publisher[T]); is && len(*pub.Publications(p.obj)) > 0 {
		return res, nil
	}
	p.in.Conn.Outdated(connection.MarksFeed(r.kind.Feed)) // this or an earlier creation may have succeeded
	is, err := r.owns(ctx, p, p.facts.External)
	if problem, err := connection.AsProblem(ctx, err); problem != nil || err != nil {
		return res, err
	}
	if is.ownedBySelf() {
		res.refused = true
		return res, nil
	}
	controllerutil.RemoveFinalizer(p.obj, v1beta1.FinalizerExternal)
	written, err := r.rewrite(ctx, p)
	res.refused = !written
	return res, err
}

// restoreFinalizer adds the finalizer again if the object owns something and another client has removed the finalizer,
// for example by replacing the entire object. It also does so for paused objects, because nothing else would delay
// their deletion. It returns false if the object has changed in the meantime.
func (r *reconciler[T, D]) restoreFinalizer(ctx context.Context, p *pass[T, D]) (bool, error) {
	if r.Identity.Planned || p.facts.Deleting || p.facts.Provenance == "" || p.facts.Management == v1beta1.Observe {
		return true, nil
	}
	if controllerutil.AddFinalizer(p.obj, v1beta1.FinalizerExternal) {
		p.log.Info("another client removed the finalizer; it is restored")
	}
	return r.rewrite(ctx, p)
}

// unmark removes the annotation of an attempted creation. It
// returns false if the object has changed.
func (r *reconciler[T, D]) unmark(ctx context.Context, p *pass[T, D]) (bool, error) {
	annotations := p.obj.GetAnnotations()
	delete(annotations, v1beta1.AnnotationCreatePending)
	p.obj.SetAnnotations(annotations)
	return r.rewrite(ctx, p)
}

// outdated invalidates the listings of the kind and of its owner marks.
func (r *reconciler[T, D]) outdated(p *pass[T, D]) {
	p.in.Conn.Outdated(r.kind.Feed)
	p.in.Conn.Outdated(connection.MarksFeed(r.kind.Feed))
}

func (r *reconciler[T, D]) rewrite(ctx context.Context, p *pass[T, D]) (bool, error) {
	written, err := status.PatchMetadata(ctx, r.Client, p.read, p.obj)
	p.read = copyOf(p.obj)
	return written, err
}

// attempt returns the annotation value of an attempted creation. The value depends on the object's UID, on the external
// object that it owns at that time, and on its claims. So it is not valid for a copy of the manifest or for a later
// declaration. Without claims, attempt returns the prefix of the value.
func (p *pass[T, D]) attempt(claims []string) string {
	mark := string(p.obj.GetUID()) + "/" + p.facts.Owned + "/"
	if claims == nil {
		return mark
	}
	sum := sha256.Sum256([]byte(strings.Join(claims, "\n")))
	return mark + hex.EncodeToString(sum[:8])
}

// drifted reports whether an action repairs an outside change. It does if the present declaration was verified earlier
// and the external object no longer agrees with it.
func (p *pass[T, D]) drifted(a Action) bool {
	_, was := p.read.Managed()
	return (a == actCreate || a == actUpdate) && p.verified(was) && !p.facts.External.Renewed
}

// verified reports whether a status says Ready for the current generation.
func (p *pass[T, D]) verified(s *v1beta1.ManagedStatus) bool {
	return meta.IsStatusConditionTrue(s.Conditions, v1beta1.ConditionReady) && s.ObservedGeneration == p.obj.GetGeneration()
}

func (p *pass[T, D]) tripIfUnavailable(why *connection.Problem) {
	if why.Reason == v1beta1.ReasonKeyServerUnavailable && p.in.Conn != nil {
		p.in.Conn.Trip(why)
	}
}

func (d Decision) deletes() bool { return d.Action == actDelete || d.Action == actRetire }
