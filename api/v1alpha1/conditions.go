package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Condition types. Ready, Reconciling and Stalled mean what kstatus takes them
// to mean; Reconciling, Stalled, Paused and Expiring are present only while
// true.
const (
	// ConditionReady: what the object declares was read back and agrees.
	ConditionReady = "Ready"
	// ConditionVerified: the outcome of the last re-read; its message names the evidence.
	ConditionVerified = "Verified"
	// ConditionReconciling: work is under way or will be retried without anybody's help.
	ConditionReconciling = "Reconciling"
	// ConditionStalled: nothing will change until somebody changes something.
	ConditionStalled = "Stalled"
	// ConditionPaused: the paused annotation holds all work on the object.
	ConditionPaused = "Paused"
	// ConditionExpiring: a certificate or a revocation list of the object is about to expire.
	ConditionExpiring = "Expiring"
	// ConditionChangeFeed, on a KeyServer: whether outside changes are seen as
	// they happen or only at the resync interval.
	ConditionChangeFeed = "ChangeFeed"
	// ConditionTrailConsistent, on a KeyServer: whether the audit trails that it
	// witnesses, those of its peers above all, only ever grew. Unknown where the
	// service does not say.
	ConditionTrailConsistent = "TrailConsistent"
	// ConditionLeftBehind, on a KeyServer, while it holds: by their owner marks, the key server
	// has objects whose resources of this cluster are gone. Their deletion bypassed the finalizer.
	ConditionLeftBehind = "LeftBehind"
)

// Reason is the coded cause in a condition. It says what to do next.
type Reason string

// The reasons.
const (
	ReasonVerified             Reason = "Verified"
	ReasonProgressing          Reason = "Progressing"
	ReasonKeyServerUnavailable Reason = "KeyServerUnavailable"
	ReasonAccessDenied         Reason = "AccessDenied"
	ReasonNotVerified          Reason = "NotVerified"
	ReasonInvalidSpec          Reason = "InvalidSpec"
	ReasonDependencyNotReady   Reason = "DependencyNotReady"
	ReasonConflict             Reason = "Conflict"
	ReasonUnsupported          Reason = "Unsupported"
	ReasonDrifted              Reason = "Drifted"
	ReasonInUse                Reason = "InUse"
	ReasonPaused               Reason = "Paused"
	ReasonFollowing            Reason = "Following"
	ReasonNotYetValid          Reason = "NotYetValid"
	ReasonExpired              Reason = "Expired"
	ReasonExpiring             Reason = "Expiring"
)

// Outlook says whether an unready object gets better by itself.
type Outlook string

// The outlooks.
const (
	// Settled: there is nothing left to do.
	Settled Outlook = "Settled"
	// Retrying: the manager goes on by itself; the object is Reconciling.
	Retrying Outlook = "Retrying"
	// NeedsHelp: somebody has to change something; the object is Stalled.
	NeedsHelp Outlook = "NeedsHelp"
)

// ReasonEntry is one row of the catalogue of reasons: what the conditions say
// when the reason applies, and what a person does about it.
type ReasonEntry struct {
	Reason   Reason
	Ready    metav1.ConditionStatus
	Verified metav1.ConditionStatus
	Outlook  Outlook
	Next     string
}

// Reasons is the catalogue. Conditions are written from it and from nowhere else.
var Reasons = []ReasonEntry{
	{ReasonVerified, metav1.ConditionTrue, metav1.ConditionTrue, Settled,
		"Nothing to do: the key server was re-read and agrees."},
	{ReasonProgressing, metav1.ConditionFalse, metav1.ConditionUnknown, Retrying,
		"Wait: the manager is at work or about to try again."},
	{ReasonKeyServerUnavailable, metav1.ConditionFalse, metav1.ConditionUnknown, Retrying,
		"Look at the KeyServer: it does not answer. Work goes on by itself when it does."},
	{ReasonAccessDenied, metav1.ConditionFalse, metav1.ConditionUnknown, NeedsHelp,
		"Give the KeyServer's credentials a role that grants the operation named in the message, or the object a grant in spec.grants of the KeyServer; the message says which."},
	{ReasonNotVerified, metav1.ConditionFalse, metav1.ConditionFalse, Retrying,
		"The key server accepted a write that does not show when read back. It is retried; if it persists, look at the key server."},
	{ReasonInvalidSpec, metav1.ConditionFalse, metav1.ConditionUnknown, NeedsHelp,
		"Correct what the message names."},
	{ReasonDependencyNotReady, metav1.ConditionFalse, metav1.ConditionUnknown, Retrying,
		"Create or repair the object that the message names."},
	{ReasonConflict, metav1.ConditionFalse, metav1.ConditionFalse, NeedsHelp,
		"Decide who owns the external object: change the adoption policy, or remove one of the claims."},
	{ReasonUnsupported, metav1.ConditionFalse, metav1.ConditionUnknown, NeedsHelp,
		"This key server does not offer the call that is needed."},
	{ReasonDrifted, metav1.ConditionFalse, metav1.ConditionFalse, NeedsHelp,
		"The key server differs from what is declared and managementPolicy is Observe; status.drift lists where."},
	{ReasonInUse, metav1.ConditionFalse, metav1.ConditionUnknown, Retrying,
		"Remove the objects that the message names; the deletion then finishes."},
	{ReasonPaused, metav1.ConditionUnknown, metav1.ConditionUnknown, NeedsHelp,
		"Remove the annotation trust.keyserver.dev/paused."},
	{ReasonNotYetValid, metav1.ConditionFalse, metav1.ConditionTrue, Retrying,
		"Wait for the time in the message, when the certificate becomes valid, or declare one that is valid now. A CA that it replaces stays trusted until then."},
	{ReasonExpired, metav1.ConditionFalse, metav1.ConditionTrue, NeedsHelp,
		"Declare what is valid, a certificate or a revocation list as the message says: nobody is trusted by one that has expired."},
	{ReasonExpiring, metav1.ConditionTrue, metav1.ConditionTrue, Settled,
		"Declare the next certificate or revocation list before the time in the message; the reason of the condition Expiring only."},
	{ReasonFollowing, metav1.ConditionTrue, metav1.ConditionTrue, Settled,
		"Nothing to do: outside changes are seen as they happen."},
}

// Entry returns the reason's row of the catalogue. An unknown reason reads as
// Progressing, so that no object can become Ready by a misspelling.
func (r Reason) Entry() ReasonEntry {
	for _, e := range Reasons {
		if e.Reason == r {
			return e
		}
	}
	return ReasonProgressing.Entry()
}
