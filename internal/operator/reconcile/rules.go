package reconcile

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/status"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/brief"
)

// Action is what one pass over an object does.
type Action string

// The actions.
const (
	actWait    Action = "Wait"    // nothing now, and what the status says stays
	actReport  Action = "Report"  // nothing now; the status says why
	actCreate  Action = "Create"  // make the external object
	actAdopt   Action = "Adopt"   // take it over as it is
	actUpdate  Action = "Update"  // correct it, taking it over if need be
	actClaim   Action = "Claim"   // mark as one's own what is so already
	actRetire  Action = "Retire"  // delete one that a rotation has replaced
	actForget  Action = "Forget"  // strike a replaced one off without deleting it
	actDelete  Action = "Delete"  // delete it, because the object is being deleted
	ActRelease Action = "Release" // let the object go
)

// Decision is what a rule answers.
type Decision struct {
	Rule    string // which rule, or which hindrance, for logs and tests
	Action  Action
	Reason  v1alpha1.Reason
	Message string
	Target  string        // external id, for Retire, Forget and Delete
	Again   time.Duration // come back after this, 0 where something else will call
	// Foretells: a deletion that comes next is only announced.
	Foretells bool
}

// rule is one reason to act or not to. ok is false where it does not apply.
type rule struct {
	name string
	ask  func(Facts) (Decision, bool)
}

// objectRules need only the object: while one applies, the key server is not
// asked anything.
var objectRules = []rule{
	{"kindRemoved", kindRemoved},
	{"abandoned", abandoned},
	{"paused", paused},
	{"inUse", inUse},
	{"nothingToDelete", nothingToDelete},
}

// serverRules take what the key server holds into account. The last one always
// applies.
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

// decide returns the answer of the first rule that applies.
func decide(rules []rule, f Facts) (Decision, bool) {
	for _, r := range rules {
		if d, ok := r.ask(f); ok {
			d.Rule = cmp.Or(d.Rule, r.name)
			return d, true
		}
	}
	return Decision{}, false
}

// ByObject decides as far as the object itself says what to do. ok is false
// where a key server has to be asked.
func ByObject(f Facts) (d Decision, ok bool) { return decide(objectRules, f) }

// Removing a custom resource definition deletes every object of the kind. It
// must never delete the trust that they declared.
func kindRemoved(f Facts) (Decision, bool) {
	if !f.Deleting || !f.KindRemoved {
		return Decision{}, false
	}
	return release("the custom resource definition is being removed; what is on the key server stays there"), true
}

func abandoned(f Facts) (Decision, bool) {
	if !f.Deleting || !f.Abandoned {
		return Decision{}, false
	}
	return release("abandoned as its annotation asks; what is on the key server stays there"), true
}

func paused(f Facts) (Decision, bool) {
	if !f.Paused {
		return Decision{}, false
	}
	return report(v1alpha1.ReasonPaused, "paused by the annotation %s; nothing is read or written", v1alpha1.AnnotationPaused), true
}

func inUse(f Facts) (Decision, bool) {
	if !f.Deleting || len(f.Dependants) == 0 {
		return Decision{}, false
	}
	return report(v1alpha1.ReasonInUse, "deletion waits: still needed by %s", brief.List(f.Dependants)), true
}

// nothingToDelete lets an object go that has nothing outside to delete, so
// that its deletion does not wait for a key server that may never answer.
func nothingToDelete(f Facts) (Decision, bool) {
	if !f.Deleting {
		return Decision{}, false
	}
	switch {
	case f.Management == v1alpha1.Observe:
		return release("managementPolicy is Observe; nothing is deleted"), true
	case f.Deletion == v1alpha1.RetainExternal:
		return release("deletionPolicy is Retain; what is on the key server stays there"), true
	case f.Attempted, f.removable(f.Provenance) && f.Owned != "":
		return Decision{}, false
	}
	for _, s := range f.Superseded {
		if f.removable(s.Provenance) {
			return Decision{}, false
		}
	}
	if f.Owned != "" {
		return release("it was adopted and deletionPolicy is DeleteIfCreated; it stays on the key server"), true
	}
	return release("it owns nothing on the key server"), true
}

func obstacle(f Facts) (Decision, bool) {
	if f.Obstacle == nil {
		return Decision{}, false
	}
	d := report(f.Obstacle.Reason, "%s", f.Obstacle.Message)
	d.Again = f.Obstacle.Again
	if d.Again == 0 {
		d.Again = f.Resync // the net; an event normally comes first
	}
	if f.Obstacle.Passing {
		d.Action = actWait
	}
	if f.Deleting {
		d.Message = waits(d.Message)
	}
	return d, true
}

// waits says of a deletion why it is not done, and what ends the waiting.
func waits(why string) string {
	return "deletion waits: " + strings.TrimPrefix(why, "deletion waits: ") +
		"; the annotation " + v1alpha1.AnnotationAbandon + " releases it and leaves what is on the key server"
}

// backoff bounds the writes to a key server that does not keep them: however
// often an object is woken, it writes no earlier than its retry is due.
func backoff(f Facts) (Decision, bool) {
	if f.Failures == 0 || !f.Now.Before(f.RetryAt) {
		return Decision{}, false
	}
	return Decision{Action: actWait, Again: f.RetryAt.Sub(f.Now)}, true
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

// passedOn leaves alone what has come to belong to somebody else.
func passedOn(f Facts) (Decision, bool) {
	if !f.Deleting || !f.others() {
		return Decision{}, false
	}
	return release(f.External.What + " is owned by " + f.Holder + " now; it stays on the key server"), true
}

func inherited(f Facts) (Decision, bool) {
	if !f.Deleting || f.Heir == "" {
		return Decision{}, false
	}
	return release(f.External.What + " is also declared by " + f.Heir + ", which takes it over; it stays on the key server"), true
}

// consequence says what a deletion takes with it before it does.
func consequence(f Facts) (Decision, bool) {
	h, hinders := f.External.hindrance(Removed)
	if !f.Deleting || !hinders || (!f.Attempted && !f.removable(f.Provenance)) {
		return Decision{}, false
	}
	d := report(h.Reason, "%s", brief.Clip("removing "+f.External.What+": "+h.Message, status.MaxMessage))
	d.Foretells, d.Again = true, time.Millisecond
	return d, f.Said != d.Message
}

func deleteExternal(f Facts) (Decision, bool) {
	if !f.Deleting {
		return Decision{}, false
	}
	if !f.Attempted && !f.removable(f.Provenance) {
		return release(f.External.What + " was adopted and deletionPolicy is DeleteIfCreated; it stays on the key server"), true
	}
	return Decision{
		Action: actDelete, Reason: v1alpha1.ReasonProgressing, Target: f.External.ID,
		Message: "deleting " + f.External.What,
	}, true
}

func rival(f Facts) (Decision, bool) {
	if f.Management == v1alpha1.Observe || f.Rival == "" {
		return Decision{}, false
	}
	return f.settle(report(v1alpha1.ReasonConflict, "%s is claimed by %s, which is older; delete one of the two", f.External.What, f.Rival)), true
}

func observe(f Facts) (Decision, bool) {
	if f.Management != v1alpha1.Observe {
		return Decision{}, false
	}
	switch {
	case !f.External.Exists:
		return f.settle(report(v1alpha1.ReasonDrifted, "%s does not exist on the key server; managementPolicy Observe writes nothing", f.External.What)), true
	case len(f.External.Drift) > 0:
		return f.settle(report(v1alpha1.ReasonDrifted, "%s differs in %s; managementPolicy Observe writes nothing", f.External.What, f.fields())), true
	default:
		return f.settle(report(v1alpha1.ReasonVerified, "re-read: %s", f.External.Evidence)), true
	}
}

// ownedByOther writes nothing about what belongs to somebody else, who would
// only write it back.
func ownedByOther(f Facts) (Decision, bool) {
	if !f.others() {
		return Decision{}, false
	}
	return f.settle(report(v1alpha1.ReasonConflict,
		"%s is owned by %s, and this object is %s; nothing is written until the owner lets go of it: "+
			"delete it there with deletionPolicy Retain, or set its managementPolicy to Observe", f.External.What, f.Holder, f.Me)), true
}

// hindered says what the kind has found in the way of its external object.
func hindered(f Facts) (Decision, bool) {
	occasion := Absent
	if f.External.Exists {
		occasion = Present
	}
	h, hinders := f.External.hindrance(Always, occasion)
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
	return Decision{Action: actCreate, Reason: v1alpha1.ReasonProgressing, Message: "creating " + f.External.What}, true
}

// resume takes back what is the object's own already: by its mark, a creation whose
// outcome was never recorded, or a certificate that a rotation returns to.
func resume(f Facts) (Decision, bool) {
	if f.External.ID == f.Owned {
		return Decision{}, false
	}
	if !f.resumes() && !f.supersedes(f.External.ID) && !f.mine() {
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
	case f.Adoption == v1alpha1.AdoptNever:
		return f.settle(report(v1alpha1.ReasonConflict,
			"%s exists already and adoptionPolicy is Never", f.External.What)), true
	case same:
		return f.adopt(), true
	case f.Adoption == v1alpha1.AdoptAlways:
		return f.correct(), true
	default:
		return f.settle(report(v1alpha1.ReasonConflict,
			"%s exists already and differs in %s; set adoptionPolicy to Always to take it over and correct it", f.External.What, f.fields())), true
	}
}

func drift(f Facts) (Decision, bool) {
	if len(f.External.Drift) == 0 {
		return Decision{}, false
	}
	return f.correct(), true
}

// claim marks what the object owns and has no mark, as it was made before there
// were any, or lost it.
func claim(f Facts) (Decision, bool) {
	if !f.unmarked() {
		return Decision{}, false
	}
	return f.settle(Decision{Action: actClaim, Reason: v1alpha1.ReasonVerified, Message: "re-read: " + f.External.Evidence}), true
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
	if h, hinders := f.External.hindrance(Agreed); hinders {
		d := f.settle(report(h.Reason, "%s", h.Message))
		d.Rule = h.Rule
		return d, true
	}
	return f.settle(report(v1alpha1.ReasonVerified, "re-read: %s", f.External.Evidence)), true
}

func release(message string) Decision {
	return Decision{Action: ActRelease, Reason: v1alpha1.ReasonProgressing, Message: message}
}

func report(reason v1alpha1.Reason, format string, args ...any) Decision {
	return Decision{Action: actReport, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func (f Facts) adopt() Decision {
	return Decision{
		Action: actAdopt, Reason: v1alpha1.ReasonVerified,
		Message: "re-read: " + f.External.Evidence,
	}
}

func (f Facts) correct() Decision {
	return Decision{
		Action: actUpdate, Reason: v1alpha1.ReasonProgressing,
		Message: "correcting " + f.fields() + " of " + f.External.What,
	}
}

// dispose deals with a replaced external object whose time has come. It is
// deleted only if it could be deleted together with the object, and if nobody
// else declares it.
func (f Facts) dispose(s Superseded) Decision {
	d := Decision{Action: actForget, Reason: v1alpha1.ReasonVerified, Target: s.ID}
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

// settle sets when to come back to an object that needs nothing now: at the
// resync, or earlier if an overlap ends.
func (f Facts) settle(d Decision) Decision {
	d.Again = f.Resync
	for _, s := range f.Superseded {
		d.Again = min(d.Again, max(s.RemoveAfter.Sub(f.Now), time.Millisecond))
	}
	return d
}
