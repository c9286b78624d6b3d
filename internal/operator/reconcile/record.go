package reconcile

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/brief"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/status"
)

// maxDrift is the maximum number of differences that the status lists.
const maxDrift = 64

// record writes the result to the status and records events.
func (r *reconciler[T, D]) record(p *pass[T, D], res result) {
	now := status.Stamp(r.Clock.Now())
	switch {
	case res.refused, res.Action == actWait, res.done && (res.Action == ActRelease || res.Action == actDelete):
		return
	case res.Reason == v1beta1.ReasonPaused:
		status.Pause(&p.status.Conditions, p.obj.GetGeneration(), now, res.Message)
		r.population.Move(client.ObjectKeyFromObject(p.obj), string(res.Reason))
		return
	}
	seen := p.facts.External
	before := meta.FindStatusCondition(p.status.Conditions, v1beta1.ConditionReady)
	wasVerified := p.verified(p.status)
	if res.partlyCreated {
		seen = r.recordDone(p, res, seen)
		seen.Drift = []v1beta1.FieldDrift{{Field: "complete", Declared: "true", Observed: "false"}}
	}
	if res.done {
		seen = r.recordDone(p, res, seen)
		res.Reason, res.Message = v1beta1.ReasonVerified, res.sentence()
		if p.facts.Deleting { // not Ready: other external objects are deleted next
			res.Reason = v1beta1.ReasonProgressing
		}
		if h, hinders := seen.blocker(Agreed); hinders {
			res.Reason, res.Message = h.Reason, h.Message
		}
	}
	owner := seen.Exists && (res.done || res.partlyCreated || p.facts.Management == v1beta1.Observe || seen.ID == p.facts.Owned)
	if p.facts.Management == v1beta1.Observe && seen.Exists && seen.ID != p.facts.Owned {
		p.status.Provenance = "" // the object now observes another external object than it owned
	}
	if p.facts.Problem == nil {
		r.recordSeen(p, res, seen, owner, now)
	}
	// Without a change, the message of the last write stays.
	if res.Reason == v1beta1.ReasonVerified && !res.done && wasVerified && p.token == "" && seen.IntendedChange == "" {
		res.Message = before.Message
	} else if res.Reason == v1beta1.ReasonVerified {
		p.status.LastVerifiedTime = &now
	}
	if seen.IntendedChange != "" && owner {
		r.say(p, status.RotatedEvent(seen.What, seen.IntendedChange))
	}
	lives := r.expiries(p.obj)
	if life := r.expiry(p.obj); !life.notAfter.IsZero() {
		life.observe(r.kind.Name, client.ObjectKeyFromObject(p.obj))
	}
	res = lives.applyExpiry(res, now.Time)
	r.announce(p, res, before)
	if message, begins := lives.warning(&p.status.Conditions, p.obj.GetGeneration(), now); begins {
		r.say(p, status.ExpiringEvent(message))
	}
	if validity(res.Reason) && (before == nil || before.Reason != string(res.Reason)) {
		r.say(p, status.ReasonEvent(res.Reason, false, res.Message))
	}
	p.status.ObservedGeneration = p.obj.GetGeneration()
	status.Conclude(&p.status.Conditions, p.obj.GetGeneration(), now, status.Conclusion{
		Reason: res.Reason, Message: res.Message, Exhausted: r.failures.exhausted(p.obj),
	})
	r.population.Move(client.ObjectKeyFromObject(p.obj), string(res.Reason))
}

// recordSeen writes the external object to the status.
func (r *reconciler[T, D]) recordSeen(p *pass[T, D], res result, seen External, owner bool, now metav1.Time) {
	r.adapter.Record(p.obj, p.want, seen, owner, now.Time)
	p.status.Drift = seen.Drift[:min(len(seen.Drift), maxDrift)]
	if !seen.Exists && res.Reason == v1beta1.ReasonDrifted {
		p.status.Drift = []v1beta1.FieldDrift{{Field: "exists", Declared: "true", Observed: "false"}}
	}
	if p.token != "" {
		p.status.LastHandledReconcileAt = p.token
	}
}

// recordDone records the effect of an action, and returns the external object after the action.
func (r *reconciler[T, D]) recordDone(p *pass[T, D], res result, seen External) External {
	rot, rotates := any(r.adapter).(Rotator[T])
	if rotates && !res.deletes() && res.Action != actForget && seen.Replaces != "" && res.outcome.ID != p.facts.Owned {
		rot.Supersede(p.obj, SupersededClaim{
			Superseded: Superseded{ID: p.facts.Owned, Provenance: p.status.Provenance},
			Claim:      seen.Replaces,
		}, p.facts.Now)
	}
	switch res.Action {
	case actCreate, actAdopt, actUpdate:
		p.status.Provenance = p.facts.provenanceAfter(res.Action)
	default: // Retire and Forget concern another external object
		if rotates {
			rot.RemoveSuperseded(p.obj, res.Target)
		}
		return seen
	}
	seen.Exists, seen.ID, seen.Drift = true, res.outcome.ID, nil
	if res.outcome.AdapterData != nil {
		seen.AdapterData = res.outcome.AdapterData
	}
	return seen
}

// sentence returns the condition message for a successful action.
func (res result) sentence() string {
	verb := map[Action]string{
		actCreate: "created", actUpdate: "corrected", actAdopt: "took over",
		actRetire: "removed the superseded " + res.Target,
	}[res.Action]
	if verb == "" {
		return res.Message
	}
	return verb + ": " + res.outcome.Evidence
}

// announce records the events and metrics of a pass.
func (r *reconciler[T, D]) announce(p *pass[T, D], res result, before *metav1.Condition) {
	if r.foundDrift(p, res) {
		status.DriftFound.WithLabelValues(r.kind.Name).Inc()
		r.say(p, status.DriftFoundEvent(p.facts.External.What, difference(p.facts.External)))
	}
	switch {
	case (res.done || res.partlyCreated) && res.Action == actCreate:
		r.say(p, status.CreatedEvent(p.facts.External.What, res.outcome.Evidence))
	case res.done && res.Action == actAdopt:
		r.say(p, status.AdoptedEvent(p.facts.External.What, res.outcome.Evidence))
	case res.done && res.Action == actUpdate:
		r.say(p, status.UpdatedEvent(p.facts.External.What, p.facts.fields(), res.outcome.Evidence))
	case res.done && res.Action == actRetire:
		r.say(p, status.RetiredEvent(res.Target, res.outcome.Evidence))
	case res.done:
		r.say(p, status.ForgottenEvent(res.Message))
	case res.AnnouncesDeletion:
		r.say(p, status.RemovingEvent(res.Message))
	case notable(res.Reason, p.facts.Deleting) && (before == nil || before.Reason != string(res.Reason) ||
		(p.facts.Deleting && before.Message != res.Message)):
		r.say(p, status.ReasonEvent(res.Reason, p.facts.Deleting, res.Message))
	}
	if res.done && (p.repairs || p.drifted(res.Action)) {
		status.DriftRepaired.WithLabelValues(r.kind.Name).Inc()
	}
	if res.Reason == v1beta1.ReasonVerified && (before == nil || before.Status != metav1.ConditionTrue) {
		since := p.obj.GetCreationTimestamp().Time
		if before != nil {
			since = before.LastTransitionTime.Time
		}
		status.TimeToVerified.WithLabelValues(r.kind.Name).Observe(r.Clock.Since(since).Seconds())
	}
}

// foundDrift reports whether the pass found an outside change, repaired or not. It returns true only once per change,
// because the object is not Ready afterwards.
func (r *reconciler[T, D]) foundDrift(p *pass[T, D], res result) bool {
	_, was := p.read.Managed()
	return p.drifted(res.Action) || p.drifted(res.tried) ||
		res.Reason == v1beta1.ReasonDrifted && p.verified(was) && !p.facts.External.Renewed
}

// validity reports whether a reason concerns the validity period of a certificate.
func validity(reason v1beta1.Reason) bool {
	return reason == v1beta1.ReasonExpired || reason == v1beta1.ReasonNotYetValid
}

// notable reports whether a reason causes an event on the object. An unavailable key server causes one event on the
// KeyServer, and an event on an object only if it delays the object's deletion.
func notable(reason v1beta1.Reason, deleting bool) bool {
	switch reason {
	case v1beta1.ReasonVerified, v1beta1.ReasonProgressing,
		v1beta1.ReasonExpired, v1beta1.ReasonNotYetValid: // these have their own events
		return false
	case v1beta1.ReasonKeyServerUnavailable:
		return deleting
	default:
		return true
	}
}

func difference(e External) string {
	if !e.Exists {
		return "it no longer exists"
	}
	parts := make([]string, len(e.Drift))
	for i, d := range e.Drift {
		parts[i] = fmt.Sprintf("%s is %q, but %q is declared", d.Field, brief.Clip(d.Observed, 200), brief.Clip(d.Declared, 200))
	}
	return strings.Join(parts, "; ")
}

func (r *reconciler[T, D]) say(p *pass[T, D], e status.Event) { e.Record(r.Recorder, p.obj) }
