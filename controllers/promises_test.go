package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
)

// What conditions say, by reason. Alerts, health checks and waiting scripts are
// written against it, so it is said here once more.
func TestWhatReasonsPromise(t *testing.T) {
	want := map[v1alpha1.Reason]string{
		v1alpha1.ReasonVerified:             "Ready=True Verified=True, Settled, event Normal",
		v1alpha1.ReasonFollowing:            "Ready=True Verified=True, Settled, event Normal",
		v1alpha1.ReasonProgressing:          "Ready=False Verified=Unknown, Retrying, event Warning",
		v1alpha1.ReasonKeyServerUnavailable: "Ready=False Verified=Unknown, Retrying, event Warning",
		v1alpha1.ReasonDependencyNotReady:   "Ready=False Verified=Unknown, Retrying, event Warning",
		v1alpha1.ReasonInUse:                "Ready=False Verified=Unknown, Retrying, event Warning",
		v1alpha1.ReasonNotVerified:          "Ready=False Verified=False, Retrying, event Warning",
		v1alpha1.ReasonAccessDenied:         "Ready=False Verified=Unknown, NeedsHelp, event Warning",
		v1alpha1.ReasonInvalidSpec:          "Ready=False Verified=Unknown, NeedsHelp, event Warning",
		v1alpha1.ReasonUnsupported:          "Ready=False Verified=Unknown, NeedsHelp, event Warning",
		v1alpha1.ReasonConflict:             "Ready=False Verified=False, NeedsHelp, event Warning",
		v1alpha1.ReasonDrifted:              "Ready=False Verified=False, NeedsHelp, event Warning",
		v1alpha1.ReasonPaused:               "Ready=Unknown Verified=Unknown, NeedsHelp, event Warning",
	}
	got := map[v1alpha1.Reason]string{}
	for _, e := range v1alpha1.Reasons {
		kind := "Normal"
		if reasonEvent(e.Reason, false, "m").Warning {
			kind = "Warning"
		}
		got[e.Reason] = fmt.Sprintf("Ready=%s Verified=%s, %s, event %s", e.Ready, e.Verified, e.Outlook, kind)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What a refusal of the key server makes of an object, and when it is looked at
// again without anything having happened.
func TestWhatRefusalsMean(t *testing.T) {
	const seldom = 30 * time.Second // no event announces that it is over
	cases := []struct {
		why   string
		want  problem
		codes []string
	}{
		{"the write was accepted and does not show", problem{Reason: v1alpha1.ReasonNotVerified}, []string{
			"NOT_SAVED", "NOT_REMOVED", "NOT_PERSISTED", "NOT_VERIFIED", "READBACK_FAILED",
		}},
		{"somebody else was faster", problem{Reason: v1alpha1.ReasonProgressing, Outdated: true}, []string{"ALREADY_TRUSTED", "NOT_TRUSTED", "NOT_FOUND"}},
		{"somebody else has it", problem{Reason: v1alpha1.ReasonConflict, Outdated: true}, []string{"ALREADY_EXISTS", "BUILT_IN", "LAST_WRITER"}},
		{"others use it", problem{Reason: v1alpha1.ReasonInUse, Again: seldom}, []string{"IN_USE"}},
		{"the declaration cannot be", problem{Reason: v1alpha1.ReasonInvalidSpec}, []string{"BAD_REQUEST", "INVALID_ARGUMENT"}},
		{"the manager may not", problem{Reason: v1alpha1.ReasonAccessDenied, Again: seldom}, []string{
			"ACCESS_DENIED", "ACL_DENIED", "PRINCIPAL_DISABLED", "NOT_WRITABLE", "INVALID_CREDENTIALS", "LOGIN_THROTTLED",
			"SESSION_NOT_FOUND", "SESSION_EXPIRED", "REVOCATION_STATUS_UNAVAILABLE", "REVOCATION_EVIDENCE_STALE",
		}},
		{"nobody knows what it means", problem{Reason: v1alpha1.ReasonProgressing, Again: seldom}, []string{"A_CODE_OF_A_LATER_VERSION"}},
	}
	said := map[string]bool{}
	for _, tc := range cases {
		for _, code := range tc.codes {
			said[code] = true
			tc.want.Code, tc.want.Message = code, code+": d"
			p, err := asProblem(context.Background(), &client.Error{Status: http.StatusConflict, Code: code, Detail: "d"})
			if err != nil || p == nil {
				t.Fatalf("%s: %v", code, err)
			}
			if *p != tc.want {
				t.Errorf("%s: %s means %+v, want %+v", tc.why, code, *p, tc.want)
			}
		}
	}
	for code := range meanings {
		if !said[code] {
			t.Errorf("nobody says here what %s means", code)
		}
	}
}

// A key server that cannot be asked, and failures that are not its own.
func TestWhatFailuresMean(t *testing.T) {
	for _, status := range []int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout} {
		p, err := asProblem(context.Background(), &client.Error{Status: status, Code: "STORE_UNAVAILABLE", Detail: "d"})
		if err != nil || p.Reason != v1alpha1.ReasonKeyServerUnavailable {
			t.Errorf("%d means %+v, %v", status, p, err)
		}
	}
	ours := errors.New("the API server is away")
	if p, err := asProblem(context.Background(), ours); p != nil || !errors.Is(err, ours) {
		t.Errorf("a failure of the cluster is %+v, %v", p, err)
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if p, err := asProblem(gone, &client.Error{Status: http.StatusConflict, Code: "NOT_SAVED"}); p != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("a pass that was cancelled is %+v, %v", p, err)
	}
}

// The names of events that kubectl shows and that people filter by.
func TestNamesOfEvents(t *testing.T) {
	want := []happening{
		{false, "Created", "Create", "created w: e"},
		{false, "Adopted", "Adopt", "took over w: e"},
		{false, "Updated", "Update", "corrected f of w: e"},
		{true, "DriftFound", "Observe", "w was changed outside: f"},
		{false, "SupersededRemoved", "Retire", "removed the superseded w: e"},
		{false, "SupersededLeft", "Forget", "m"},
		{false, "Deleted", "Delete", "deleted w: e"},
		{true, "Removing", "Delete", "m"},
		{false, "Released", "Release", "m"},
		{true, "Conflict", "Reconcile", "m"},
		{true, "DeletionHeld", "Delete", "m"},
	}
	got := []happening{
		createdEvent("w", "e"), adoptedEvent("w", "e"), updatedEvent("w", "f", "e"), driftFoundEvent("w", "f"), retiredEvent("w", "e"),
		forgottenEvent("m"), deletedEvent("w", "e"), removingEvent("m"), releasedEvent("m"),
		reasonEvent(v1alpha1.ReasonConflict, false, "m"), reasonEvent(v1alpha1.ReasonConflict, true, "m"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Objects that were made together are not checked together for ever.
func TestPausesAreSpread(t *testing.T) {
	for name, draw := range map[string]func() time.Duration{
		"resync":  func() time.Duration { return again(time.Hour, time.Hour).RequeueAfter },
		"failure": func() time.Duration { return newFailures().add(&v1alpha1.Role{}, "", false, noon, defaultTiming) },
	} {
		first := draw()
		for i := 0; draw() == first; i++ {
			if i == 100 {
				t.Errorf("every %s is %s", name, first)
				break
			}
		}
	}
	if defaultOverlap != 24*time.Hour {
		t.Errorf("without spec.overlap a superseded CA stays for %s, and the documents say a day", defaultOverlap)
	}
}
