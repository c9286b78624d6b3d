package status

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

// TestWhatReasonsPromise lists the conditions of each reason again, because alerts, health checks and scripts rely on
// them.
func TestWhatReasonsPromise(t *testing.T) {
	want := map[v1beta1.Reason]string{
		v1beta1.ReasonVerified:             "Ready=True Verified=True, Settled, event Normal",
		v1beta1.ReasonFollowing:            "Ready=True Verified=True, Settled, event Normal",
		v1beta1.ReasonProgressing:          "Ready=False Verified=Unknown, Retrying, event Warning",
		v1beta1.ReasonKeyServerUnavailable: "Ready=False Verified=Unknown, Retrying, event Warning",
		v1beta1.ReasonDependencyNotReady:   "Ready=False Verified=Unknown, Retrying, event Warning",
		v1beta1.ReasonInUse:                "Ready=False Verified=Unknown, Retrying, event Warning",
		v1beta1.ReasonNotVerified:          "Ready=False Verified=False, Retrying, event Warning",
		v1beta1.ReasonAccessDenied:         "Ready=False Verified=Unknown, NeedsHelp, event Warning",
		v1beta1.ReasonInvalidSpec:          "Ready=False Verified=Unknown, NeedsHelp, event Warning",
		v1beta1.ReasonUnsupported:          "Ready=False Verified=Unknown, NeedsHelp, event Warning",
		v1beta1.ReasonConflict:             "Ready=False Verified=False, NeedsHelp, event Warning",
		v1beta1.ReasonDrifted:              "Ready=False Verified=False, NeedsHelp, event Warning",
		v1beta1.ReasonNotYetValid:          "Ready=False Verified=True, Retrying, event Warning",
		v1beta1.ReasonExpired:              "Ready=False Verified=True, NeedsHelp, event Warning",
		v1beta1.ReasonExpiring:             "Ready=True Verified=True, Settled, event Normal",
		v1beta1.ReasonPaused:               "Ready=Unknown Verified=Unknown, NeedsHelp, event Warning",
	}
	got := map[v1beta1.Reason]string{}
	for _, e := range v1beta1.Reasons {
		kind := "Normal"
		if ReasonEvent(e.Reason, false, "m").Warning {
			kind = "Warning"
		}
		got[e.Reason] = fmt.Sprintf("Ready=%s Verified=%s, %s, event %s", e.Ready, e.Verified, e.Outlook, kind)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestNamesOfEvents checks the reasons of events, which kubectl shows and users filter by.
func TestNamesOfEvents(t *testing.T) {
	want := []Event{
		{false, "Created", "Create", "created w: e"},
		{false, "Adopted", "Adopt", "took over w: e"},
		{false, "Updated", "Update", "corrected f of w: e"},
		{true, "DriftFound", "Observe", "w was changed outside: f"},
		{false, "SupersededRemoved", "Retire", "removed the superseded w: e"},
		{false, "SupersededLeft", "Forget", "m"},
		{false, "Rotated", "Observe", "w: n"},
		{false, "Deleted", "Delete", "deleted w: e"},
		{true, "Removing", "Delete", "m"},
		{true, "Expiring", "Observe", "m"},
		{false, "Released", "Release", "m"},
		{true, "LeftBehind", "Observe", "m"},
		{true, "Conflict", "Reconcile", "m"},
		{true, "DeletionHeld", "Delete", "m"},
	}
	got := []Event{
		CreatedEvent("w", "e"), AdoptedEvent("w", "e"), UpdatedEvent("w", "f", "e"), DriftFoundEvent("w", "f"), RetiredEvent("w", "e"),
		ForgottenEvent("m"), RotatedEvent("w", "n"), DeletedEvent("w", "e"), RemovingEvent("m"), ExpiringEvent("m"), ReleasedEvent("m"), LeftBehindEvent("m"),
		ReasonEvent(v1beta1.ReasonConflict, false, "m"), ReasonEvent(v1beta1.ReasonConflict, true, "m"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
