package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Condition types. Ready, Reconciling and Stalled have the meaning that kstatus gives
// them. Reconciling, Stalled, Paused and Expiring are present only while they are true.
const (
	// ConditionReady: the declared state was read back from the key server and agrees. On a KeyServer: the key server
	// responds and accepts the credentials.
	ConditionReady = "Ready"
	// ConditionVerified shows the result of the last read of the key server. Its message names the evidence.
	ConditionVerified = "Verified"
	// ConditionReconciling means that the manager is working on the object, or will retry by itself.
	ConditionReconciling = "Reconciling"
	// ConditionStalled: the object makes no progress until a user changes something.
	ConditionStalled = "Stalled"
	// ConditionPaused: the paused annotation stops all work on the object.
	ConditionPaused = "Paused"
	// ConditionExpiring: a certificate or a revocation list of the object expires soon.
	ConditionExpiring = "Expiring"
	// ConditionChangeFeed, on a KeyServer, says whether the manager sees changes by other clients immediately, or only
	// at the resync interval.
	ConditionChangeFeed = "ChangeFeed"
	// ConditionTrailConsistent, on a KeyServer, says whether the audit logs that the key server witnesses, in
	// particular those of its peers, have only grown. It is Unknown if the manager cannot read this from the key
	// server.
	ConditionTrailConsistent = "TrailConsistent"
	// ConditionLeftBehind, on a KeyServer, means that the key server has objects whose owner marks name resources that
	// no longer exist in this cluster. These resources were deleted without their finalizer. Present only while it is
	// true.
	ConditionLeftBehind = "LeftBehind"
)

// Reason is a fixed word for the cause of a condition. Its entry in Reasons says what to do next.
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

// Outlook says whether an object that is not ready can become ready without help.
type Outlook string

// The outlooks.
const (
	// Settled: nothing is left to do.
	Settled Outlook = "Settled"
	// Retrying: the manager continues by itself; the object is Reconciling.
	Retrying Outlook = "Retrying"
	// NeedsHelp: a user has to change something; the object is Stalled, except if it is Paused.
	NeedsHelp Outlook = "NeedsHelp"
)

// ReasonEntry is one row of the catalogue of reasons: the conditions that a reason leads
// to, and what a user should do.
type ReasonEntry struct {
	Reason   Reason
	Ready    metav1.ConditionStatus
	Verified metav1.ConditionStatus
	Outlook  Outlook
	Next     string
}

// Reasons is the catalogue. All conditions are written from it.
var Reasons = []ReasonEntry{
	{ReasonVerified, metav1.ConditionTrue, metav1.ConditionTrue, Settled,
		"Nothing to do: the key server was read again and agrees."},
	{ReasonProgressing, metav1.ConditionFalse, metav1.ConditionUnknown, Retrying,
		"Wait: the manager is working, or will retry soon."},
	{ReasonKeyServerUnavailable, metav1.ConditionFalse, metav1.ConditionUnknown, Retrying,
		"Check the KeyServer: the key server does not respond. Work continues when it does."},
	{ReasonAccessDenied, metav1.ConditionFalse, metav1.ConditionUnknown, NeedsHelp,
		"Add the missing right that the message names: a role with the operation for the KeyServer's credentials, or a grant for the object in spec.grants of the KeyServer."},
	{ReasonNotVerified, metav1.ConditionFalse, metav1.ConditionFalse, Retrying,
		"The key server accepted a write, but the next read does not show it. The manager retries; if the reason persists, check the key server."},
	{ReasonInvalidSpec, metav1.ConditionFalse, metav1.ConditionUnknown, NeedsHelp,
		"Correct the input that the message names."},
	{ReasonDependencyNotReady, metav1.ConditionFalse, metav1.ConditionUnknown, Retrying,
		"Create or repair the object that the message names."},
	{ReasonConflict, metav1.ConditionFalse, metav1.ConditionFalse, NeedsHelp,
		"Decide which object owns the external object: change the adoption policy, or remove one of the claims. On TrailConsistent: find out why the audit log that the message names was changed or truncated. On LeftBehind: delete the objects on the key server, or create the resources again."},
	{ReasonUnsupported, metav1.ConditionFalse, metav1.ConditionUnknown, NeedsHelp,
		"The key server does not support a required call; for a ClusterTrustBundle, the API server does not."},
	{ReasonDrifted, metav1.ConditionFalse, metav1.ConditionFalse, NeedsHelp,
		"Compare status.drift: the key server differs from the declaration, and managementPolicy Observe corrects nothing."},
	{ReasonInUse, metav1.ConditionFalse, metav1.ConditionUnknown, Retrying,
		"Remove the objects that the message names. The deletion then finishes."},
	{ReasonPaused, metav1.ConditionUnknown, metav1.ConditionUnknown, NeedsHelp,
		"Remove the annotation trust.keyserver.dev/paused."},
	{ReasonNotYetValid, metav1.ConditionFalse, metav1.ConditionTrue, Retrying,
		"Wait until the certificate becomes valid, at the time in the message, or declare one that is valid now. A CA that it replaces stays trusted until then."},
	{ReasonExpired, metav1.ConditionFalse, metav1.ConditionTrue, NeedsHelp,
		"Declare a valid certificate or revocation list, as the message says. An expired one establishes no trust."},
	{ReasonExpiring, metav1.ConditionTrue, metav1.ConditionTrue, Settled,
		"Declare the next certificate or revocation list before the time in the message. Only the condition Expiring has this reason."},
	{ReasonFollowing, metav1.ConditionTrue, metav1.ConditionTrue, Settled,
		"Nothing to do: the manager sees outside changes immediately. Only the condition ChangeFeed has this reason."},
}

// Entry returns the row of the reason in the catalogue. An unknown reason counts as Progressing, so that a misspelt
// reason cannot make an object Ready.
func (r Reason) Entry() ReasonEntry {
	for _, e := range Reasons {
		if e.Reason == r {
			return e
		}
	}
	return ReasonProgressing.Entry()
}
