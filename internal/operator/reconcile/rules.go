package reconcile

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/brief"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/status"
)

// Action is the action of one pass over an object.
type Action string

// The actions of a pass.
const (
	actWait    Action = "Wait"    // no action; the status does not change
	actReport  Action = "Report"  // no action; the status gives the reason
	actCreate  Action = "Create"  // create the external object
	actAdopt   Action = "Adopt"   // take over the external object without a change
	actUpdate  Action = "Update"  // correct the external object, and take it over if necessary
	actClaim   Action = "Claim"   // set the owner mark on an external object that is already owned
	actRetire  Action = "Retire"  // delete an external object that a rotation has replaced
	actForget  Action = "Forget"  // remove a replaced external object from the status without deleting it
	actDelete  Action = "Delete"  // delete the external object, because the object is being deleted
	ActRelease Action = "Release" // remove the finalizer of the object
)

// Decision is the result of a rule.
type Decision struct {
	Rule         string // name of the rule or of its blocker, for logs and tests
	Action       Action
	Reason       v1beta1.Reason
	Message      string
	Target       string        // external id, for Retire, Forget and Delete
	RequeueAfter time.Duration // pause before the next pass; 0 if another event causes it
	// AnnouncesDeletion means that the status announces a deletion, which the next pass carries out.
	AnnouncesDeletion bool
}

// rule is one reason for a decision. ask returns false if the rule does not apply.
type rule struct {
	name string
	ask  func(Facts) (Decision, bool)
}

// objectRules need only the object. If one applies, no request is sent to the key server.
var objectRules = []rule{
	{"kindRemoved", kindRemoved},
	{"abandoned", abandoned},
	{"paused", paused},
	{"inUse", inUse},
	{"nothingToDelete", nothingToDelete},
}

// serverRules also need data of the key server. The last rule always applies.
var serverRules = []rule{
	{"obstacle", obstacle},
	{"backoff", backoff},
	{"deleteSuperseded", deleteSuperseded},
	{"deletedAlready", deletedAlready},
	{"passedOn", passedOn},
	{"inherited", inherited},
	{"consequence", consequence},
	{"delete", deleteExternal},
	{"rival", rival},
	{"observe", observe},
	{"ownedByOther", ownedByOther},
	{"hindered", hindered},
	{"create", create},
	{"resume", resume},
	{"adoption", adoption},
	{"drift", drift},
	{"claim", claim},
	{"retire", retire},
	{"verified", verified},
}

// decide returns the decision of the first rule that applies, or false if none does.
func decide(rules []rule, f Facts) (Decision, bool) {
	for _, r := range rules {
		if d, ok := r.ask(f); ok {
			d.Rule = cmp.Or(d.Rule, r.name)
			return d, true
		}
	}
	return Decision{}, false
}

// ByObject decides from the object alone. ok is false if the decision needs the key server.
func ByObject(f Facts) (d Decision, ok bool) { return decide(objectRules, f) }

// kindRemoved releases objects whose custom resource definition is being deleted. The deletion of a definition deletes
// all objects of the kind, and must never delete the trust that they declared.
func kindRemoved(f Facts) (Decision, bool) {
	if !f.Deleting || !f.KindRemoved {
		return Decision{}, false
	}
	return release("the custom resource definition is being removed; the external object stays on the key server"), true
}

func abandoned(f Facts) (Decision, bool) {
	if !f.Deleting || !f.Abandoned {
		return Decision{}, false
	}
	return release("released because of the annotation " + v1beta1.AnnotationAbandon + "; the external object stays on the key server"), true
}

func paused(f Facts) (Decision, bool) {
	if !f.Paused {
		return Decision{}, false
	}
	return report(v1beta1.ReasonPaused, "paused by the annotation %s, so nothing is read or written; remove it to continue", v1beta1.AnnotationPaused), true
}

func inUse(f Facts) (Decision, bool) {
	if !f.Deleting || len(f.Dependants) == 0 {
		return Decision{}, false
	}
	return report(v1beta1.ReasonInUse, "deletion waits: still needed by %s", brief.List(f.Dependants)), true
}

// nothingToDelete releases an object if nothing on the key server has to be deleted. Its deletion then does not wait
// for a key server that may never respond.
func nothingToDelete(f Facts) (Decision, bool) {
	if !f.Deleting {
		return Decision{}, false
	}
	switch {
	case f.Management == v1beta1.Observe:
		return release("managementPolicy is Observe; nothing is deleted"), true
	case f.Deletion == v1beta1.RetainExternal:
		return release("deletionPolicy is Retain; the external object stays on the key server"), true
	case f.Attempted, f.removable(f.Provenance) && f.Owned != "":
		return Decision{}, false
	}
	for _, s := range f.Superseded {
		if f.removable(s.Provenance) {
			return Decision{}, false
		}
	}
	if f.Owned != "" {
		return release("the external object was adopted and deletionPolicy is DeleteIfCreated; it stays on the key server"), true
	}
	return release("the object owns nothing on the key server"), true
}

func obstacle(f Facts) (Decision, bool) {
	if f.Problem == nil {
		return Decision{}, false
	}
	d := report(f.Problem.Reason, "%s", f.Problem.Message)
	d.RequeueAfter = f.Problem.RequeueAfter
	if d.RequeueAfter == 0 {
		d.RequeueAfter = f.Resync // a fallback: normally an event causes a pass earlier
	}
	if f.Problem.Transient {
		d.Action = actWait
	}
	if f.Deleting {
		d.Message = waits(d.Message)
	}
	return d, true
}

// waits returns the message of a delayed deletion: why the deletion waits, and how to end the wait.
func waits(why string) string {
	return "deletion waits: " + strings.TrimPrefix(why, "deletion waits: ") +
		"; to delete this object and keep the external object, set the annotation " + v1beta1.AnnotationAbandon
}

// backoff delays the next write after failed writes until the retry is due, even if other events cause passes.
func backoff(f Facts) (Decision, bool) {
	if f.Failures == 0 || !f.Now.Before(f.RetryAt) {
		return Decision{}, false
	}
	return Decision{Action: actWait, RequeueAfter: f.RetryAt.Sub(f.Now)}, true
}

func deleteSuperseded(f Facts) (Decision, bool) {
	if !f.Deleting {
		return Decision{}, false
	}
	for _, s := range f.Superseded {
		if f.removable(s.Provenance) {
			return f.dispose(s), true
		}
	}
	return Decision{}, false
}

func deletedAlready(f Facts) (Decision, bool) {
	if !f.Deleting || (f.External.Exists && f.ours()) {
		return Decision{}, false
	}
	if f.External.Exists {
		return release(f.External.What + " was never taken over; it stays on the key server"), true
	}
	return release(cmp.Or(f.External.Evidence, "the key server no longer has it")), true
}

// passedOn releases a deleted object whose external object now has another owner.
func passedOn(f Facts) (Decision, bool) {
	if !f.Deleting || !f.ownedByOther() {
		return Decision{}, false
	}
	return release(f.External.What + " is owned by " + f.Holder + " now; it stays on the key server"), true
}

func inherited(f Facts) (Decision, bool) {
	if !f.Deleting || f.NewOwner == "" {
		return Decision{}, false
	}
	return release(f.External.What + " stays on the key server: " + f.NewOwner + " also declares it and takes it over"), true
}

// consequence reports, before a deletion, what else it removes.
func consequence(f Facts) (Decision, bool) {
	h, hinders := f.External.blocker(Removed)
	if !f.Deleting || !hinders || (!f.Attempted && !f.removable(f.Provenance)) {
		return Decision{}, false
	}
	d := report(h.Reason, "%s", brief.Clip("removing "+f.External.What+": "+h.Message, status.MaxMessage))
	d.AnnouncesDeletion, d.RequeueAfter = true, time.Millisecond
	return d, f.ReadyMessage != d.Message
}

func deleteExternal(f Facts) (Decision, bool) {
	if !f.Deleting {
		return Decision{}, false
	}
	if !f.Attempted && !f.removable(f.Provenance) {
		return release(f.External.What + " was adopted and deletionPolicy is DeleteIfCreated; it stays on the key server"), true
	}
	return Decision{
		Action: actDelete, Reason: v1beta1.ReasonProgressing, Target: f.External.ID,
		Message: "deleting " + f.External.What,
	}, true
}

func rival(f Facts) (Decision, bool) {
	if f.Management == v1beta1.Observe || f.ConflictingOwner == "" {
		return Decision{}, false
	}
	return f.settle(report(v1beta1.ReasonConflict, "%s is claimed by %s, which is older; delete one of the two", f.External.What, f.ConflictingOwner)), true
}

func observe(f Facts) (Decision, bool) {
	if f.Management != v1beta1.Observe {
		return Decision{}, false
	}
	switch {
	case !f.External.Exists:
		return f.settle(report(v1beta1.ReasonDrifted, "%s does not exist on the key server, and managementPolicy Observe writes nothing; create it there, or set managementPolicy to Manage", f.External.What)), true
	case len(f.External.Drift) > 0:
		return f.settle(report(v1beta1.ReasonDrifted, "%s differs in %s, and managementPolicy Observe writes nothing; correct one side, or set managementPolicy to Manage", f.External.What, f.fields())), true
	default:
		return f.settle(report(v1beta1.ReasonVerified, "re-read: %s", f.External.Evidence)), true
	}
}

// ownedByOther blocks writes to an external object of another owner, which would revert them.
func ownedByOther(f Facts) (Decision, bool) {
	if !f.ownedByOther() {
		return Decision{}, false
	}
	return f.settle(report(v1beta1.ReasonConflict,
		"%s is owned by %s, but this object is %s; nothing is written until the owner releases it: "+
			"delete the owner with deletionPolicy Retain, or set the owner's managementPolicy to Observe", f.External.What, f.Holder, f.Self)), true
}

// hindered reports a blocker of the external object.
func hindered(f Facts) (Decision, bool) {
	occasion := Absent
	if f.External.Exists {
		occasion = Present
	}
	h, hinders := f.External.blocker(Always, occasion)
	if !hinders {
		return Decision{}, false
	}
	d := f.settle(report(h.Reason, "%s", h.Message))
	d.Rule = h.Rule
	return d, true
}

func create(f Facts) (Decision, bool) {
	if f.External.Exists {
		return Decision{}, false
	}
	return Decision{Action: actCreate, Reason: v1beta1.ReasonProgressing, Message: "creating " + f.External.What}, true
}

// resume takes over an external object that already belongs to this object. It belongs to this object if it has its
// mark, if an interrupted creation made it, or if it was replaced in a rotation and is declared again.
func resume(f Facts) (Decision, bool) {
	if f.External.ID == f.Owned {
		return Decision{}, false
	}
	if !f.resumes() && !f.supersedes(f.External.ID) && !f.ownedBySelf() {
		return Decision{}, false
	}
	if len(f.External.Drift) > 0 {
		return f.correct(), true
	}
	return f.adopt(), true
}

func adoption(f Facts) (Decision, bool) {
	if f.External.ID == f.Owned {
		return Decision{}, false
	}
	same := len(f.External.Drift) == 0
	switch {
	case f.Adoption == v1beta1.AdoptNever:
		return f.settle(report(v1beta1.ReasonConflict,
			"%s exists already and adoptionPolicy is Never; set another adoptionPolicy to take it over", f.External.What)), true
	case same:
		return f.adopt(), true
	case f.Adoption == v1beta1.AdoptAlways:
		return f.correct(), true
	default:
		return f.settle(report(v1beta1.ReasonConflict,
			"%s exists already and differs in %s; set adoptionPolicy to Always to take it over and correct it", f.External.What, f.fields())), true
	}
}

func drift(f Facts) (Decision, bool) {
	if len(f.External.Drift) == 0 {
		return Decision{}, false
	}
	return f.correct(), true
}

// claim sets the missing mark of an owned external object, which is older than the support of marks or has lost its
// mark.
func claim(f Facts) (Decision, bool) {
	if !f.unmarked() {
		return Decision{}, false
	}
	return f.settle(Decision{Action: actClaim, Reason: v1beta1.ReasonVerified, Message: "re-read: " + f.External.Evidence}), true
}

func retire(f Facts) (Decision, bool) {
	for _, s := range f.Superseded {
		if !f.Now.Before(s.RemoveAfter) {
			return f.dispose(s), true
		}
	}
	return Decision{}, false
}

func verified(f Facts) (Decision, bool) {
	if h, hinders := f.External.blocker(Agreed); hinders {
		d := f.settle(report(h.Reason, "%s", h.Message))
		d.Rule = h.Rule
		return d, true
	}
	return f.settle(report(v1beta1.ReasonVerified, "re-read: %s", f.External.Evidence)), true
}

func release(message string) Decision {
	return Decision{Action: ActRelease, Reason: v1beta1.ReasonProgressing, Message: message}
}

func report(reason v1beta1.Reason, format string, args ...any) Decision {
	return Decision{Action: actReport, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func (f Facts) adopt() Decision {
	return Decision{
		Action: actAdopt, Reason: v1beta1.ReasonVerified,
		Message: "re-read: " + f.External.Evidence,
	}
}

func (f Facts) correct() Decision {
	return Decision{
		Action: actUpdate, Reason: v1beta1.ReasonProgressing,
		Message: "correcting " + f.fields() + " of " + f.External.What,
	}
}

// dispose decides about a replaced external object after its overlap. It is deleted if the deletion policy allows to
// delete it with the object, and if no other object declares it.
func (f Facts) dispose(s Superseded) Decision {
	d := Decision{Action: actForget, Reason: v1beta1.ReasonVerified, Target: s.ID}
	switch {
	case s.ClaimedBy != "":
		d.Message = "leaving the superseded " + s.ID + ": it is declared by " + s.ClaimedBy
	case !f.removable(s.Provenance):
		d.Message = "leaving the superseded " + s.ID + ": this object did not create it"
	default:
		d.Action, d.Message = actRetire, "removing the superseded "+s.ID
	}
	return d
}

// settle sets when to reconcile an object again that needs
// nothing now: at the resync, or earlier if an overlap ends.
func (f Facts) settle(d Decision) Decision {
	d.RequeueAfter = f.Resync
	for _, s := range f.Superseded {
		d.RequeueAfter = min(d.RequeueAfter, max(s.RemoveAfter.Sub(f.Now), time.Millisecond))
	}
	return d
}
