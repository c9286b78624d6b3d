package controllers

import (
	"fmt"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
)

// action is what one pass over an object does.
type action string

// The actions.
const (
	actWait    action = "Wait"    // nothing now, and what the status says stays
	actReport  action = "Report"  // nothing now; the status says why
	actCreate  action = "Create"  // make the external object
	actAdopt   action = "Adopt"   // take it over as it is
	actUpdate  action = "Update"  // correct it, taking it over if need be
	actRetire  action = "Retire"  // delete one that a rotation has replaced
	actForget  action = "Forget"  // strike a replaced one off without deleting it
	actDelete  action = "Delete"  // delete it, because the object is being deleted
	actRelease action = "Release" // let the object go
)

// facts are everything that a decision rests on. Nothing else is consulted,
// not even the clock.
type facts struct {
	Now time.Time

	// What the object asks for.
	Management v1alpha1.ManagementPolicy
	Adoption   v1alpha1.AdoptionPolicy
	Deletion   v1alpha1.DeletionPolicy
	Resync     time.Duration
	Paused     bool

	// Its deletion.
	Deleting    bool
	Abandoned   bool     // by annotation
	KindRemoved bool     // the custom resource definition itself is being deleted
	Dependants  []string // objects that need this one

	// What it owns according to its status.
	Owned      string // external id
	Provenance v1alpha1.Provenance
	// Attempted: a creation of exactly what is declared was begun and its
	// outcome was never recorded.
	Attempted bool
	// Superseded are external objects that a rotation has replaced.
	Superseded []superseded

	// Obstacle is what kept the rest from being gathered.
	Obstacle *problem

	// External is what the key server holds.
	External external

	// Rival is the older object that claims the same; Heir is one that goes
	// on claiming it when this one is deleted.
	Rival string
	Heir  string

	// Failures is how many writes in a row have failed, RetryAt when the next is due.
	Failures int
	RetryAt  time.Time

	// Said is the message of the Ready condition.
	Said string
}

// external is one object on the key server as last read.
type external struct {
	What     string // for people: `CA "CN=..." (certificateId ...)`
	Exists   bool
	ID       string
	ReadOnly bool // the key server defines it for itself
	Drift    []v1alpha1.FieldDrift
	// Evidence says how the reading was matched with the declaration.
	Evidence string
	// Renewed: the declaration has changed since the status was written, so
	// that a difference is not the doing of somebody outside.
	Renewed bool
	// Replaces is the claim on the object that is owned now, where the
	// declaration has moved on to another one.
	Replaces string
	// Uncreatable says why it cannot be made if it does not exist.
	Uncreatable string
	// Waits says what has to be there before it can be made.
	Waits string
	// Vouched is the fingerprint of the CA that a peer's chain leads to.
	Vouched string
	// Begun: nothing has to be changed or taken away, only added, as a creation
	// leaves it that was cut short.
	Begun bool
	// Fixed says why what differs, or is missing, cannot be corrected.
	Fixed string
	// Anew: what differs is corrected as it was made, for which there has to be
	// what it Waits for.
	Anew bool
	// Consequence says what its deletion takes with it, Orphans are the ids of
	// what that leaves behind.
	Consequence string
	Orphans     []string
}

// superseded is an external object that a rotation has replaced.
type superseded struct {
	ID          string
	Provenance  v1alpha1.Provenance
	RemoveAfter time.Time
	ClaimedBy   string // another object that declares it
}

// decision is what a rule answers.
type decision struct {
	Rule    string // which rule, for logs and tests
	Action  action
	Reason  v1alpha1.Reason
	Message string
	Target  string        // external id, for Retire, Forget and Delete
	Again   time.Duration // come back after this, 0 where something else will call
}

// rule is one reason to act or not to. ok is false where it does not apply.
type rule struct {
	name string
	ask  func(facts) (decision, bool)
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
	{"inherited", inherited},
	{"consequence", consequence},
	{"delete", deleteExternal},
	{"rival", rival},
	{"readOnly", readOnly},
	{"observe", observe},
	{"uncreatable", uncreatable},
	{"fixed", fixed},
	{"dependency", dependency},
	{"create", create},
	{"resume", resume},
	{"adoption", adoption},
	{"drift", drift},
	{"retire", retire},
	{"verified", verified},
}

// decide returns the answer of the first rule that applies.
func decide(rules []rule, f facts) (decision, bool) {
	for _, r := range rules {
		if d, ok := r.ask(f); ok {
			d.Rule = r.name
			return d, true
		}
	}
	return decision{}, false
}

// Removing a custom resource definition deletes every object of the kind. It
// must never delete the trust that they declared.
func kindRemoved(f facts) (decision, bool) {
	if !f.Deleting || !f.KindRemoved {
		return decision{}, false
	}
	return release("the custom resource definition is being removed; what is on the key server stays there"), true
}

func abandoned(f facts) (decision, bool) {
	if !f.Deleting || !f.Abandoned {
		return decision{}, false
	}
	return release("abandoned as its annotation asks; what is on the key server stays there"), true
}

func paused(f facts) (decision, bool) {
	if !f.Paused {
		return decision{}, false
	}
	return report(v1alpha1.ReasonPaused, "paused by the annotation %s; nothing is read or written", v1alpha1.AnnotationPaused), true
}

func inUse(f facts) (decision, bool) {
	if !f.Deleting || len(f.Dependants) == 0 {
		return decision{}, false
	}
	return report(v1alpha1.ReasonInUse, "deletion waits: still needed by %s", enumerate(f.Dependants)), true
}

// nothingToDelete lets an object go that has nothing outside to delete, so
// that its deletion does not wait for a key server that may never answer.
func nothingToDelete(f facts) (decision, bool) {
	if !f.Deleting {
		return decision{}, false
	}
	switch {
	case f.Management == v1alpha1.Observe:
		return release("managementPolicy is Observe; nothing is deleted"), true
	case f.Deletion == v1alpha1.RetainExternal:
		return release("deletionPolicy is Retain; what is on the key server stays there"), true
	case f.Attempted, f.removable(f.Provenance) && f.Owned != "":
		return decision{}, false
	}
	for _, s := range f.Superseded {
		if f.removable(s.Provenance) {
			return decision{}, false
		}
	}
	if f.Owned != "" {
		return release("it was adopted and deletionPolicy is DeleteIfCreated; it stays on the key server"), true
	}
	return release("it owns nothing on the key server"), true
}

func obstacle(f facts) (decision, bool) {
	if f.Obstacle == nil {
		return decision{}, false
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
		d.Message = "deletion waits: " + d.Message +
			"; the annotation " + v1alpha1.AnnotationAbandon + " releases it and leaves what is on the key server"
	}
	return d, true
}

// backoff bounds the writes to a key server that does not keep them: however
// often an object is woken, it writes no earlier than its retry is due.
func backoff(f facts) (decision, bool) {
	if f.Failures == 0 || !f.Now.Before(f.RetryAt) {
		return decision{}, false
	}
	return decision{Action: actWait, Again: f.RetryAt.Sub(f.Now)}, true
}

func deleteSuperseded(f facts) (decision, bool) {
	if !f.Deleting {
		return decision{}, false
	}
	for _, s := range f.Superseded {
		if f.removable(s.Provenance) {
			return f.dispose(s), true
		}
	}
	return decision{}, false
}

func deletedAlready(f facts) (decision, bool) {
	if !f.Deleting || (f.External.Exists && f.ours()) {
		return decision{}, false
	}
	if f.External.Exists {
		return release(f.External.What + " was never taken over; it stays on the key server"), true
	}
	return release("the key server no longer has it"), true
}

func inherited(f facts) (decision, bool) {
	if !f.Deleting || f.Heir == "" {
		return decision{}, false
	}
	return release(f.External.What + " is also declared by " + f.Heir + ", which takes it over; it stays on the key server"), true
}

// consequence says what a deletion takes with it before it does.
func consequence(f facts) (decision, bool) {
	if !f.Deleting || f.External.Consequence == "" || (!f.Attempted && !f.removable(f.Provenance)) {
		return decision{}, false
	}
	d := report(v1alpha1.ReasonProgressing, "%s", clip("removing "+f.External.What+": "+f.External.Consequence, maxMessage))
	d.Again = time.Millisecond
	return d, f.Said != d.Message
}

func deleteExternal(f facts) (decision, bool) {
	if !f.Deleting {
		return decision{}, false
	}
	if !f.Attempted && !f.removable(f.Provenance) {
		return release(f.External.What + " was adopted and deletionPolicy is DeleteIfCreated; it stays on the key server"), true
	}
	return decision{
		Action: actDelete, Reason: v1alpha1.ReasonProgressing, Target: f.External.ID,
		Message: "deleting " + f.External.What,
	}, true
}

func rival(f facts) (decision, bool) {
	if f.Management == v1alpha1.Observe || f.Rival == "" {
		return decision{}, false
	}
	return f.settle(report(v1alpha1.ReasonConflict, "%s is claimed by %s, which is older; delete one of the two", f.External.What, f.Rival)), true
}

func readOnly(f facts) (decision, bool) {
	if f.Management == v1alpha1.Observe || !f.External.Exists || !f.External.ReadOnly {
		return decision{}, false
	}
	return f.settle(report(v1alpha1.ReasonConflict,
		"%s is built in and read-only; set managementPolicy to Observe, or declare one of your own under another name", f.External.What)), true
}

func observe(f facts) (decision, bool) {
	if f.Management != v1alpha1.Observe {
		return decision{}, false
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

func uncreatable(f facts) (decision, bool) {
	if f.External.Exists || f.External.Uncreatable == "" {
		return decision{}, false
	}
	return f.settle(report(v1alpha1.ReasonInvalidSpec, "%s", f.External.Uncreatable)), true
}

func dependency(f facts) (decision, bool) {
	if (f.External.Exists && !f.External.Anew) || f.External.Waits == "" {
		return decision{}, false
	}
	return f.settle(report(v1alpha1.ReasonDependencyNotReady, "%s", f.External.Waits)), true
}

func create(f facts) (decision, bool) {
	if f.External.Exists {
		return decision{}, false
	}
	return decision{Action: actCreate, Reason: v1alpha1.ReasonProgressing, Message: "creating " + f.External.What}, true
}

// resume takes back what is the object's own already: a creation whose outcome
// was never recorded, or a certificate that a rotation returns to.
func resume(f facts) (decision, bool) {
	if f.External.ID == f.Owned {
		return decision{}, false
	}
	if !f.resumes() && !f.supersedes(f.External.ID) {
		return decision{}, false
	}
	if len(f.External.Drift) > 0 {
		return f.correct(), true
	}
	return f.adopt(), true
}

// fixed keeps what cannot be corrected from being tried again and again, and
// from being replaced at a price that nobody has agreed to.
func fixed(f facts) (decision, bool) {
	if f.External.Fixed == "" {
		return decision{}, false
	}
	return f.settle(report(v1alpha1.ReasonConflict, "%s", f.External.Fixed)), true
}

func adoption(f facts) (decision, bool) {
	if f.External.ID == f.Owned {
		return decision{}, false
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

func drift(f facts) (decision, bool) {
	if len(f.External.Drift) == 0 {
		return decision{}, false
	}
	return f.correct(), true
}

func retire(f facts) (decision, bool) {
	for _, s := range f.Superseded {
		if !f.Now.Before(s.RemoveAfter) {
			return f.dispose(s), true
		}
	}
	return decision{}, false
}

func verified(f facts) (decision, bool) {
	return f.settle(report(v1alpha1.ReasonVerified, "re-read: %s", f.External.Evidence)), true
}

func release(message string) decision {
	return decision{Action: actRelease, Reason: v1alpha1.ReasonProgressing, Message: message}
}

func report(reason v1alpha1.Reason, format string, args ...any) decision {
	return decision{Action: actReport, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func (f facts) adopt() decision {
	return decision{
		Action: actAdopt, Reason: v1alpha1.ReasonVerified,
		Message: "re-read: " + f.External.Evidence,
	}
}

func (f facts) correct() decision {
	return decision{
		Action: actUpdate, Reason: v1alpha1.ReasonProgressing,
		Message: "correcting " + f.fields() + " of " + f.External.What,
	}
}

// dispose deals with a replaced external object whose time has come. It is
// deleted only if it could be deleted together with the object, and if nobody
// else declares it.
func (f facts) dispose(s superseded) decision {
	d := decision{Action: actForget, Reason: v1alpha1.ReasonVerified, Target: s.ID}
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
func (f facts) settle(d decision) decision {
	d.Again = f.Resync
	for _, s := range f.Superseded {
		d.Again = min(d.Again, max(s.RemoveAfter.Sub(f.Now), time.Millisecond))
	}
	return d
}

// removable reports whether the deletion policy lets go of something of that
// provenance.
func (f facts) removable(p v1alpha1.Provenance) bool {
	switch f.Deletion {
	case v1alpha1.DeleteIfCreated:
		return p == v1alpha1.Created
	case v1alpha1.DeleteExternal:
		return p != ""
	default:
		return false
	}
}

// ours reports whether the external object belongs to this one.
func (f facts) ours() bool {
	return f.External.ID == f.Owned || f.resumes()
}

// resumes reports whether the external object is what an attempt at a creation
// has made, all of it or its beginning.
func (f facts) resumes() bool {
	return f.Attempted && (len(f.External.Drift) == 0 || f.External.Begun)
}

func (f facts) supersedes(id string) bool {
	for _, s := range f.Superseded {
		if s.ID == id {
			return true
		}
	}
	return false
}

func (f facts) fields() string { return fieldsOf(f.External.Drift) }

func fieldsOf(drift []v1alpha1.FieldDrift) string {
	names := make([]string, len(drift))
	for i, d := range drift {
		names[i] = d.Field
	}
	if len(names) > 2 {
		return enumerate(names)
	}
	return strings.Join(names, " and ")
}

// enumerate names the first few and counts the rest.
func enumerate(names []string) string {
	const shown = 3
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
