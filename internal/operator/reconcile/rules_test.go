package reconcile

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// settledFacts returns the facts of an object that is managed and verified.
func settledFacts() Facts {
	return Facts{
		Now: noon, Management: v1beta1.Manage, Adoption: v1beta1.AdoptIfIdentical,
		Deletion: v1beta1.DeleteIfCreated, Resync: 10 * time.Minute,
		Owned: "id-1", Provenance: v1beta1.Created,
		External: External{What: "thing", Exists: true, ID: "id-1", Evidence: "same"},
	}
}

// held returns the Ownership of an external object with the owner by.
func held(by string) Ownership {
	return Ownership{MarksSupported: true, Self: "here/ns/Thing/a", Holder: by}
}

func hinder(f *Facts, by ...Blocker) { f.External.Blockers = append(f.External.Blockers, by...) }

func differing() []v1beta1.FieldDrift {
	return []v1beta1.FieldDrift{{Field: "operations", Declared: "a", Observed: "b"}}
}

// both applies objectRules and then serverRules, like consider.
func both(f Facts) Decision {
	if d, ok := decide(objectRules, f); ok {
		return d
	}
	d, _ := decide(serverRules, f)
	return d
}

func TestDecide(t *testing.T) {
	type want struct {
		Rule   string
		Action Action
		Reason v1beta1.Reason
		Target string
		Again  time.Duration
	}
	cases := map[string]struct {
		reason string
		given  func(*Facts)
		want   want
		says   string // part of the message
	}{
		// Verified objects.
		"verified": {
			reason: "an object that agrees needs nothing until its resync",
			given:  func(*Facts) {},
			want:   want{"verified", actReport, v1beta1.ReasonVerified, "", 10 * time.Minute},
			says:   "re-read: same",
		},

		// Dependencies, and fields that cannot be changed.
		"dependencyFirst": {
			reason: "nothing is made before what it needs is there",
			given:  func(f *Facts) { f.Owned, f.External.Exists = "", false; hinder(f, Dependency(Absent, "no CA")) },
			want:   want{"dependency", actReport, v1beta1.ReasonDependencyNotReady, "", 10 * time.Minute},
			says:   "no CA",
		},
		"dependencyGone": {
			reason: "what is there stays verified, whatever making it anew would need",
			given:  func(f *Facts) { hinder(f, Dependency(Absent, "no CA")) },
			want:   want{"verified", actReport, v1beta1.ReasonVerified, "", 10 * time.Minute},
		},
		"fixedIsNotReplaced": {
			reason: "what cannot be corrected is not taken away to be made anew",
			given: func(f *Facts) {
				f.Adoption, f.External.Drift = v1beta1.AdoptAlways, differing()
				hinder(f, Fixed("cannot be changed"))
			},
			want: want{"fixed", actReport, v1beta1.ReasonConflict, "", 10 * time.Minute},
			says: "cannot be changed",
		},
		"fixedIsNotAdopted": {
			reason: "Always must not promise to correct it",
			given: func(f *Facts) {
				f.Owned, f.Provenance, f.Adoption = "", "", v1beta1.AdoptAlways
				f.External.Drift = differing()
				hinder(f, Fixed("cannot be changed"))
			},
			want: want{"fixed", actReport, v1beta1.ReasonConflict, "", 10 * time.Minute},
		},
		"fixedIsDeleted": {
			reason: "a deletion does not need what is declared to agree",
			given: func(f *Facts) {
				f.Deleting, f.External.Drift = true, differing()
				hinder(f, Fixed("cannot be changed"))
			},
			want: want{"delete", actDelete, v1beta1.ReasonProgressing, "id-1", 0},
		},

		// Blockers of an adapter.
		"hindered": {
			reason: "a kind says why in words of its own, and the first that counts is said",
			given: func(f *Facts) {
				f.External.Drift = differing()
				hinder(f, Uncreatable("is there"), Consequence("nobody deletes it"),
					Blocker{When: Present, Reason: v1beta1.ReasonInUse, Message: "first"}, Fixed("second"))
			},
			want: want{"hindered", actReport, v1beta1.ReasonInUse, "", 10 * time.Minute},
			says: "first",
		},
		"hinderedOnlyWhilePresent": {
			reason: "what is in the way of taking over is not in that of making",
			given: func(f *Facts) {
				f.Owned, f.External.Exists = "", false
				hinder(f, BuiltIn("thing"))
			},
			want: want{"create", actCreate, v1beta1.ReasonProgressing, "", 0},
		},

		// Corrections by replacement.
		"anew": {
			reason: "what is there is corrected, and goes on being there",
			given:  func(f *Facts) { f.External.Drift = differing() },
			want:   want{"drift", actUpdate, v1beta1.ReasonProgressing, "", 0},
		},
		"anewWaits": {
			reason: "nothing is sent that would be refused",
			given: func(f *Facts) {
				f.External.Drift = differing()
				hinder(f, Dependency(Always, "no CA"))
			},
			want: want{"dependency", actReport, v1beta1.ReasonDependencyNotReady, "", 10 * time.Minute},
		},
		"anewIsNotAdopted": {
			reason: "what is somebody else's is not made anew without being asked",
			given: func(f *Facts) {
				f.Owned, f.Provenance = "", ""
				f.External.Drift = differing()
			},
			want: want{"adoption", actReport, v1beta1.ReasonConflict, "", 10 * time.Minute},
		},
		"anewIsObserved": {
			reason: "Observe writes nothing",
			given: func(f *Facts) {
				f.Management, f.External.Drift = v1beta1.Observe, differing()
				hinder(f, Dependency(Always, "no CA"))
			},
			want: want{"observe", actReport, v1beta1.ReasonDrifted, "", 10 * time.Minute},
		},

		// An interrupted creation.
		"begun": {
			reason: "what an attempt has begun is brought to its end, whatever the adoption policy",
			given: func(f *Facts) {
				f.Owned, f.Provenance, f.Adoption = "", "", v1beta1.AdoptNever
				f.Attempted, f.NeedsOnlyAdditions, f.External.Drift = true, true, differing()
			},
			want: want{"resume", actUpdate, v1beta1.ReasonProgressing, "", 0},
		},
		"begunByNobody": {
			reason: "the same beginning is another's where nothing was attempted",
			given: func(f *Facts) {
				f.Owned, f.Provenance = "", ""
				f.NeedsOnlyAdditions, f.External.Drift = true, differing()
			},
			want: want{"adoption", actReport, v1beta1.ReasonConflict, "", 10 * time.Minute},
		},
		"begunAndDeleted": {
			reason: "what an attempt has begun goes with the object",
			given: func(f *Facts) {
				f.Deleting, f.Owned, f.Provenance = true, "", ""
				f.Attempted, f.NeedsOnlyAdditions, f.External.Drift = true, true, differing()
			},
			want: want{"delete", actDelete, v1beta1.ReasonProgressing, "id-1", 0},
		},
		"fixedBeforeItIsMade": {
			reason: "nothing is begun that cannot come to its end",
			given:  func(f *Facts) { f.Owned, f.External.Exists = "", false; hinder(f, Fixed("the path is taken")) },
			want:   want{"fixed", actReport, v1beta1.ReasonConflict, "", 10 * time.Minute},
		},

		// Deletion.
		"consequenceIsSaidFirst": {
			reason: "what a deletion takes with it is said before it does",
			given:  func(f *Facts) { f.Deleting = true; hinder(f, Consequence("rows are purged")) },
			want:   want{"consequence", actReport, v1beta1.ReasonProgressing, "", time.Millisecond},
			says:   "rows are purged",
		},
		"consequenceWasSaid": {
			reason: "it is said once",
			given: func(f *Facts) {
				f.Deleting, f.ReadyMessage = true, "removing thing: rows are purged"
				hinder(f, Consequence("rows are purged"))
			},
			want: want{"delete", actDelete, v1beta1.ReasonProgressing, "id-1", 0},
		},
		"consequenceHasChanged": {
			reason: "what has changed since is said, too",
			given: func(f *Facts) {
				f.Deleting, f.ReadyMessage = true, "removing thing: rows are purged"
				hinder(f, Consequence("more rows are purged"))
			},
			want: want{"consequence", actReport, v1beta1.ReasonProgressing, "", time.Millisecond},
		},
		"noConsequence": {
			reason: "what stays takes nothing with it",
			given: func(f *Facts) {
				f.Deleting, f.Provenance = true, v1beta1.Adopted
				hinder(f, Consequence("rows are purged"))
			},
			want: want{"nothingToDelete", ActRelease, v1beta1.ReasonProgressing, "", 0},
		},
		"kindRemoved": {
			reason: "removing the CRD must never delete trust, whatever the policy",
			given: func(f *Facts) {
				f.Deleting, f.KindRemoved, f.Deletion = true, true, v1beta1.DeleteExternal
			},
			want: want{"kindRemoved", ActRelease, v1beta1.ReasonProgressing, "", 0},
		},
		"kindRemovedWhilePaused": {
			reason: "a paused object must not keep its CRD alive",
			given:  func(f *Facts) { f.Deleting, f.KindRemoved, f.Paused = true, true, true },
			want:   want{"kindRemoved", ActRelease, v1beta1.ReasonProgressing, "", 0},
		},
		"abandoned": {
			reason: "the annotation releases the object although the key server is down",
			given: func(f *Facts) {
				f.Deleting, f.Abandoned = true, true
				f.Problem = connection.NewProblem(v1beta1.ReasonKeyServerUnavailable, "down")
			},
			want: want{"abandoned", ActRelease, v1beta1.ReasonProgressing, "", 0},
		},
		"abandonWithoutDeletion": {
			reason: "the annotation means nothing until the object is deleted",
			given:  func(f *Facts) { f.Abandoned = true },
			want:   want{"verified", actReport, v1beta1.ReasonVerified, "", 10 * time.Minute},
		},
		"inUse": {
			reason: "what others need is not deleted under them",
			given: func(f *Facts) {
				f.Deleting = true
				f.Dependants = []string{"a", "b", "c", "d", "e"}
			},
			want: want{"inUse", actReport, v1beta1.ReasonInUse, "", 0},
			says: "a, b, c and 2 more",
		},
		"observedIsNotDeleted": {
			reason: "Observe deletes nothing",
			given:  func(f *Facts) { f.Deleting, f.Management = true, v1beta1.Observe },
			want:   want{"nothingToDelete", ActRelease, v1beta1.ReasonProgressing, "", 0},
		},
		"retained": {
			reason: "Retain needs no key server",
			given: func(f *Facts) {
				f.Deleting, f.Deletion = true, v1beta1.RetainExternal
				f.Problem = connection.NewProblem(v1beta1.ReasonKeyServerUnavailable, "down")
			},
			want: want{"nothingToDelete", ActRelease, v1beta1.ReasonProgressing, "", 0},
		},
		"adoptedStays": {
			reason: "DeleteIfCreated leaves what was adopted, and needs no key server for it",
			given: func(f *Facts) {
				f.Deleting, f.Provenance = true, v1beta1.Adopted
				f.Problem = connection.NewProblem(v1beta1.ReasonKeyServerUnavailable, "down")
			},
			want: want{"nothingToDelete", ActRelease, v1beta1.ReasonProgressing, "", 0},
			says: "adopted",
		},
		"neverOwned": {
			reason: "an object that lost a conflict owns nothing, even under Delete",
			given: func(f *Facts) {
				f.Deleting, f.Owned, f.Provenance, f.Deletion = true, "", "", v1beta1.DeleteExternal
			},
			want: want{"nothingToDelete", ActRelease, v1beta1.ReasonProgressing, "", 0},
		},
		"deletionWaitsForKeyServer": {
			reason: "a finalizer is not dropped while what it guards may still be there",
			given: func(f *Facts) {
				f.Deleting = true
				f.Problem = connection.NewProblem(v1beta1.ReasonKeyServerUnavailable, "KeyServer \"default\" does not respond")
			},
			want: want{"obstacle", actReport, v1beta1.ReasonKeyServerUnavailable, "", 10 * time.Minute},
			says: "deletion waits: KeyServer \"default\" does not respond; to delete this object and keep the external object, set the annotation " + v1beta1.AnnotationAbandon,
		},
		"deleteCreated": {
			reason: "what the object made it deletes",
			given:  func(f *Facts) { f.Deleting = true },
			want:   want{"delete", actDelete, v1beta1.ReasonProgressing, "id-1", 0},
		},
		"deleteAdopted": {
			reason: "Delete deletes what was adopted, too",
			given:  func(f *Facts) { f.Deleting, f.Provenance, f.Deletion = true, v1beta1.Adopted, v1beta1.DeleteExternal },
			want:   want{"delete", actDelete, v1beta1.ReasonProgressing, "id-1", 0},
		},
		"deleteUnrecorded": {
			reason: "a creation whose outcome was never recorded is deleted, not leaked",
			given:  func(f *Facts) { f.Deleting, f.Owned, f.Provenance, f.Attempted = true, "", "", true },
			want:   want{"delete", actDelete, v1beta1.ReasonProgressing, "id-1", 0},
		},
		"deleteUnrecordedButChanged": {
			reason: "what does not look like the creation is somebody else's",
			given: func(f *Facts) {
				f.Deleting, f.Owned, f.Provenance, f.Attempted = true, "", "", true
				f.External.Drift = differing()
			},
			want: want{"deletedAlready", ActRelease, v1beta1.ReasonProgressing, "", 0},
		},
		"deletedOutside": {
			reason: "nothing is left to delete",
			given:  func(f *Facts) { f.Deleting, f.External = true, External{What: "thing"} },
			want:   want{"deletedAlready", ActRelease, v1beta1.ReasonProgressing, "", 0},
		},
		"inherited": {
			reason: "another object declares the same: taking it away would only open a gap",
			given:  func(f *Facts) { f.Deleting, f.NewOwner = true, "Thing default/other" },
			want:   want{"inherited", ActRelease, v1beta1.ReasonProgressing, "", 0},
			says:   "Thing default/other",
		},
		"supersededFirst": {
			reason: "what a rotation left behind goes before the object does",
			given: func(f *Facts) {
				f.Deleting = true
				f.Superseded = []Superseded{{ID: "old", Provenance: v1beta1.Created, RemoveAfter: noon.Add(time.Hour)}}
			},
			want: want{"deleteSuperseded", actRetire, v1beta1.ReasonVerified, "old", 0},
		},

		// Paused.
		"paused": {
			reason: "nothing happens to a paused object, not even repair",
			given:  func(f *Facts) { f.Paused, f.External.Drift = true, differing() },
			want:   want{"paused", actReport, v1beta1.ReasonPaused, "", 0},
		},
		"pausedDeletion": {
			reason: "pausing holds a deletion too",
			given:  func(f *Facts) { f.Paused, f.Deleting = true, true },
			want:   want{"paused", actReport, v1beta1.ReasonPaused, "", 0},
		},

		// Problems and failures.
		"unavailable": {
			reason: "while the key server does not answer nothing is known",
			given: func(f *Facts) {
				f.Problem = connection.NewProblem(v1beta1.ReasonKeyServerUnavailable, "down")
				f.External = External{}
			},
			want: want{"obstacle", actReport, v1beta1.ReasonKeyServerUnavailable, "", 10 * time.Minute},
		},
		"connecting": {
			reason: "a moment's wait changes no status",
			given: func(f *Facts) {
				f.Problem = &connection.Problem{Reason: v1beta1.ReasonProgressing, Transient: true}
			},
			want: want{"obstacle", actWait, v1beta1.ReasonProgressing, "", 10 * time.Minute},
		},
		"backoff": {
			reason: "however often it is woken, a failed write is not sent again before its time",
			given: func(f *Facts) {
				f.External = External{What: "thing"}
				f.Failures, f.RetryAt = 3, noon.Add(7*time.Second)
			},
			want: want{"backoff", actWait, "", "", 7 * time.Second},
		},
		"backoffOver": {
			reason: "at its time it is",
			given: func(f *Facts) {
				f.External = External{What: "thing"}
				f.Failures, f.RetryAt = 3, noon
			},
			want: want{"create", actCreate, v1beta1.ReasonProgressing, "", 0},
		},

		// Conflicting claims.
		"rival": {
			reason: "of two claims the older wins; the other names it",
			given:  func(f *Facts) { f.ConflictingOwner, f.Owned, f.Provenance = "Thing default/elder", "", "" },
			want:   want{"rival", actReport, v1beta1.ReasonConflict, "", 10 * time.Minute},
			says:   "Thing default/elder",
		},
		"observersHaveNoRivals": {
			reason: "who writes nothing is in nobody's way",
			given:  func(f *Facts) { f.ConflictingOwner, f.Management = "Thing default/elder", v1beta1.Observe },
			want:   want{"observe", actReport, v1beta1.ReasonVerified, "", 10 * time.Minute},
		},
		"readOnly": {
			reason: "a built-in object cannot be managed, not even where it is identical",
			given:  func(f *Facts) { f.Adoption = v1beta1.AdoptAlways; hinder(f, BuiltIn("thing")) },
			want:   want{"readOnly", actReport, v1beta1.ReasonConflict, "", 10 * time.Minute},
			says:   "Observe",
		},

		// Observe.
		"observeIdentical": {
			reason: "agreeing is verified, built in or not",
			given:  func(f *Facts) { f.Management = v1beta1.Observe; hinder(f, BuiltIn("thing")) },
			want:   want{"observe", actReport, v1beta1.ReasonVerified, "", 10 * time.Minute},
		},
		"observeDrift": {
			reason: "Observe reports and writes nothing",
			given:  func(f *Facts) { f.Management, f.External.Drift = v1beta1.Observe, differing() },
			want:   want{"observe", actReport, v1beta1.ReasonDrifted, "", 10 * time.Minute},
			says:   "operations",
		},
		"observeAbsent": {
			reason: "absence is a difference, too",
			given:  func(f *Facts) { f.Management, f.External = v1beta1.Observe, External{What: "thing"} },
			want:   want{"observe", actReport, v1beta1.ReasonDrifted, "", 10 * time.Minute},
			says:   "does not exist",
		},

		// Creation and adoption.
		"create": {
			reason: "what is missing is made",
			given:  func(f *Facts) { f.Owned, f.Provenance, f.External = "", "", External{What: "thing"} },
			want:   want{"create", actCreate, v1beta1.ReasonProgressing, "", 0},
		},
		"recreate": {
			reason: "what somebody took away is made again",
			given:  func(f *Facts) { f.External = External{What: "thing"} },
			want:   want{"create", actCreate, v1beta1.ReasonProgressing, "", 0},
		},
		"uncreatable": {
			reason: "an id cannot be made up",
			given:  func(f *Facts) { f.External = External{Blockers: []Blocker{Uncreatable("no role has the id")}} },
			want:   want{"uncreatable", actReport, v1beta1.ReasonInvalidSpec, "", 10 * time.Minute},
		},
		"adoptIdentical": {
			reason: "IfIdentical takes over what needs no change",
			given:  func(f *Facts) { f.Owned, f.Provenance = "", "" },
			want:   want{"adoption", actAdopt, v1beta1.ReasonVerified, "", 0},
		},
		"adoptIfIdenticalButDiffering": {
			reason: "IfIdentical never overwrites",
			given:  func(f *Facts) { f.Owned, f.Provenance, f.External.Drift = "", "", differing() },
			want:   want{"adoption", actReport, v1beta1.ReasonConflict, "", 10 * time.Minute},
			says:   "adoptionPolicy to Always",
		},
		"adoptAlways": {
			reason: "Always takes over and corrects",
			given: func(f *Facts) {
				f.Owned, f.Provenance, f.External.Drift, f.Adoption = "", "", differing(), v1beta1.AdoptAlways
			},
			want: want{"adoption", actUpdate, v1beta1.ReasonProgressing, "", 0},
		},
		"adoptNever": {
			reason: "Never leaves alone even what is identical",
			given:  func(f *Facts) { f.Owned, f.Provenance, f.Adoption = "", "", v1beta1.AdoptNever },
			want:   want{"adoption", actReport, v1beta1.ReasonConflict, "", 10 * time.Minute},
			says:   "Never",
		},
		"resume": {
			reason: "a creation whose outcome was never recorded is the object's own, even under Never",
			given: func(f *Facts) {
				f.Owned, f.Provenance, f.Attempted, f.Adoption = "", "", true, v1beta1.AdoptNever
			},
			want: want{"resume", actAdopt, v1beta1.ReasonVerified, "", 0},
		},
		"rotateBack": {
			reason: "returning to a certificate that is still in its overlap needs no adoption",
			given: func(f *Facts) {
				f.External.ID, f.Adoption = "old", v1beta1.AdoptNever
				f.Superseded = []Superseded{{ID: "old", Provenance: v1beta1.Created, RemoveAfter: noon.Add(time.Hour)}}
			},
			want: want{"resume", actAdopt, v1beta1.ReasonVerified, "", 0},
		},

		// Owner marks.
		"ownedByOther": {
			reason: "what somebody else owns is not written, whatever the policy says",
			given: func(f *Facts) {
				f.Owned, f.Provenance, f.External.Drift, f.Adoption = "", "", differing(), v1beta1.AdoptAlways
				f.Ownership = held("other/ns/Thing/a")
			},
			want: want{"ownedByOther", actReport, v1beta1.ReasonConflict, "", 10 * time.Minute},
			says: "owned by other/ns/Thing/a, but this object is here/ns/Thing/a",
		},
		"ownedByOtherSince": {
			reason: "what came to belong to somebody else is not corrected",
			given:  func(f *Facts) { f.External.Drift, f.Ownership = differing(), held("other/ns/Thing/a") },
			want:   want{"ownedByOther", actReport, v1beta1.ReasonConflict, "", 10 * time.Minute},
		},
		"passedOn": {
			reason: "what came to belong to somebody else is not deleted",
			given:  func(f *Facts) { f.Deleting, f.Ownership = true, held("other/ns/Thing/a") },
			want:   want{"passedOn", ActRelease, v1beta1.ReasonProgressing, "", 0},
		},
		"knownAgain": {
			reason: "what the mark says this object has made needs no adoption, and is corrected",
			given: func(f *Facts) {
				f.Owned, f.Provenance, f.External.Drift, f.Adoption = "", "", differing(), v1beta1.AdoptNever
				f.Ownership = held("here/ns/Thing/a")
			},
			want: want{"resume", actUpdate, v1beta1.ReasonProgressing, "", 0},
		},
		"knownAgainAdopted": {
			reason: "what the mark says was adopted is taken over again",
			given: func(f *Facts) {
				f.Owned, f.Provenance, f.Adoption, f.Ownership = "", "", v1beta1.AdoptNever, held("here/ns/Thing/a/Adopted")
			},
			want: want{"resume", actAdopt, v1beta1.ReasonVerified, "", 0},
		},
		"claim": {
			reason: "what the object owned before there were marks is marked",
			given:  func(f *Facts) { f.Ownership = held("") },
			want:   want{"claim", actClaim, v1beta1.ReasonVerified, "", 10 * time.Minute},
		},
		"noMarks": {
			reason: "a key server without owner marks is asked for none",
			given:  func(f *Facts) { f.Ownership = Ownership{} },
			want:   want{"verified", actReport, v1beta1.ReasonVerified, "", 10 * time.Minute},
		},
		"observed": {
			reason: "what somebody else owns may be observed",
			given:  func(f *Facts) { f.Management, f.Ownership = v1beta1.Observe, held("other/ns/Thing/a") },
			want:   want{"observe", actReport, v1beta1.ReasonVerified, "", 10 * time.Minute},
		},

		// Drift and rotation.
		"drift": {
			reason: "an outside change is corrected",
			given:  func(f *Facts) { f.External.Drift = differing() },
			want:   want{"drift", actUpdate, v1beta1.ReasonProgressing, "", 0},
		},
		"overlap": {
			reason: "both stay until the overlap ends, and the object comes back for it",
			given: func(f *Facts) {
				f.Superseded = []Superseded{{ID: "old", Provenance: v1beta1.Created, RemoveAfter: noon.Add(time.Minute)}}
			},
			want: want{"verified", actReport, v1beta1.ReasonVerified, "", time.Minute},
		},
		"retire": {
			reason: "the overlap is over",
			given: func(f *Facts) {
				f.Superseded = []Superseded{{ID: "old", Provenance: v1beta1.Created, RemoveAfter: noon}}
			},
			want: want{"retire", actRetire, v1beta1.ReasonVerified, "old", 0},
		},
		"retireOnlyAfterTheNewOneHolds": {
			reason: "while the new one is missing the old one stays, overdue or not",
			given: func(f *Facts) {
				f.External = External{What: "new thing"}
				f.Superseded = []Superseded{{ID: "old", Provenance: v1beta1.Created, RemoveAfter: noon.Add(-time.Hour)}}
			},
			want: want{"create", actCreate, v1beta1.ReasonProgressing, "", 0},
		},
		"retireClaimed": {
			reason: "another object declares the old one: it stays",
			given: func(f *Facts) {
				f.Superseded = []Superseded{{ID: "old", Provenance: v1beta1.Created, RemoveAfter: noon, ClaimedBy: "Thing default/other"}}
			},
			want: want{"retire", actForget, v1beta1.ReasonVerified, "old", 0},
		},
		"retireAdopted": {
			reason: "what was adopted is not removed by a rotation either",
			given: func(f *Facts) {
				f.Superseded = []Superseded{{ID: "old", Provenance: v1beta1.Adopted, RemoveAfter: noon}}
			},
			want: want{"retire", actForget, v1beta1.ReasonVerified, "old", 0},
		},
	}
	fired := map[string]bool{}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := settledFacts()
			tc.given(&f)
			d := both(f)
			fired[d.Rule] = true
			got := want{d.Rule, d.Action, d.Reason, d.Target, d.RequeueAfter}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n(-want +got)\n%s\nmessage: %s", tc.reason, diff, d.Message)
			}
			if !strings.Contains(d.Message, tc.says) {
				t.Errorf("%s\nmessage %q does not say %q", tc.reason, d.Message, tc.says)
			}
		})
	}
	for _, rules := range [][]rule{objectRules, serverRules} {
		for _, r := range rules {
			if !fired[r.name] {
				t.Errorf("no case is decided by the rule %s", r.name)
			}
		}
	}
}

// TestMarksTellHowSomethingCame checks that the mark gives the provenance if the status is lost.
func TestMarksTellHowSomethingCame(t *testing.T) {
	for owner, want := range map[string]v1beta1.Provenance{
		"here/ns/Thing/a": v1beta1.Created, "here/ns/Thing/a/Adopted": v1beta1.Adopted, "": v1beta1.Adopted,
	} {
		f := settledFacts()
		f.Owned, f.Provenance, f.Ownership = "", "", held(owner)
		if got := f.provenanceAfter(actAdopt); got != want {
			t.Errorf("marked as %q it comes as %q, want %q", owner, got, want)
		}
		if again := held(f.as(f.provenanceAfter(actAdopt))); again.provenance() != want {
			t.Errorf("marked as %q, and again as %q", owner, again.Holder)
		}
	}
}

// TestOwnersFit checks that owner strings have at most 256 characters and stay different for long object names.
func TestOwnersFit(t *testing.T) {
	seen := map[string]bool{}
	for _, length := range []int{1, 100, 140, 141, 150, 253} {
		for _, end := range []string{"a", "b"} {
			owner := ownerOf("0b5d2b1c-3a53-4f0e-b1a5-6d7c7f6f3c11", "PrincipalTrust", strings.Repeat("n", 63), strings.Repeat("x", length-1)+end)
			if n := len(owner + asAdopted); n > maxOwner {
				t.Errorf("a name of %d characters makes an owner of %d", length, n)
			}
			if seen[owner] {
				t.Errorf("two objects are one owner: %s", owner)
			}
			seen[owner] = true
		}
	}
}

// TestNoWriteWithoutPermission checks that no combination of facts causes a write if the object is paused or only
// observes.
func TestNoWriteWithoutPermission(t *testing.T) {
	writes := map[Action]bool{actClaim: true, actCreate: true, actAdopt: true, actUpdate: true, actRetire: true, actDelete: true}
	for _, observe := range []bool{true, false} {
		for bits := range 1 << 9 {
			f := settledFacts()
			f.Deletion, f.Adoption = v1beta1.DeleteExternal, v1beta1.AdoptAlways
			if observe {
				f.Management = v1beta1.Observe
			} else {
				f.Paused = true
			}
			f.Deleting = bits&1 != 0
			f.External.Exists = bits&2 != 0
			f.Attempted = bits&4 != 0
			if bits&8 != 0 {
				f.External.Drift = differing()
			}
			if bits&16 != 0 {
				f.Superseded = []Superseded{{ID: "old", Provenance: v1beta1.Created, RemoveAfter: noon}}
			}
			if bits&32 != 0 {
				f.Owned = ""
			}
			if bits&64 != 0 {
				f.ConflictingOwner = "other"
			}
			if bits&128 != 0 {
				hinder(&f, BuiltIn("thing"))
			}
			if bits&256 != 0 {
				f.Ownership = held("")
			}
			if d := both(f); writes[d.Action] {
				t.Fatalf("facts %+v led to %s by the rule %s", f, d.Action, d.Rule)
			}
		}
	}
}
