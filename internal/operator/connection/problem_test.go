package connection

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
)

func TestMeanings(t *testing.T) {
	known := map[v1beta1.Reason]bool{}
	for _, e := range v1beta1.Reasons {
		known[e.Reason] = true
	}
	for code, m := range meanings {
		p, err := AsProblem(context.Background(), &client.Error{Status: 409, Code: code, Detail: "d", RequestID: "r-1"})
		if err != nil || p == nil {
			t.Fatalf("%s: %v", code, err)
		}
		if p.Reason != m.Reason || !known[p.Reason] {
			t.Errorf("%s means %q", code, p.Reason)
		}
		if want := code + ": d"; p.Message != want {
			t.Errorf("%s: message %q, want %q: a request id would make each message a write", code, p.Message, want)
		}
		if p.Reason.Entry().Ready == metav1.ConditionTrue {
			t.Errorf("%s leads to a ready object", code)
		}
	}
}

// TestWhatRefusalsMean checks the condition for each error code of a key server, and after which pause the object is
// reconciled again.
func TestWhatRefusalsMean(t *testing.T) {
	const seldom = 30 * time.Second // pause if no event reports the end of the cause
	cases := []struct {
		why   string
		want  Problem
		codes []string
	}{
		{"the write was accepted and does not show", Problem{Reason: v1beta1.ReasonNotVerified}, []string{
			"NOT_SAVED", "NOT_REMOVED", "NOT_PERSISTED", "NOT_VERIFIED", "READBACK_FAILED",
		}},
		{"somebody else was faster", Problem{Reason: v1beta1.ReasonProgressing, Outdated: true}, []string{"ALREADY_TRUSTED", "NOT_TRUSTED", "NOT_FOUND", "KEY_NOT_FOUND", "ACL_NOT_FOUND", "KEY_STATE"}},
		{"somebody else has it", Problem{Reason: v1beta1.ReasonConflict, Outdated: true}, []string{"ALREADY_EXISTS", "BUILT_IN", "BUILT_IN_PRINCIPAL", "LAST_WRITER", "OWNED"}},
		{"the roles of others are in the way", Problem{Reason: v1beta1.ReasonConflict, RequeueAfter: seldom}, []string{"DUTIES_CONFLICT"}},
		{"the manager changes nobody it logs in as", Problem{Reason: v1beta1.ReasonConflict, RequeueAfter: seldom}, []string{"OWN_ACCOUNT"}},
		{"others use it", Problem{Reason: v1beta1.ReasonInUse, RequeueAfter: seldom}, []string{"IN_USE"}},
		{"the declaration cannot be", Problem{Reason: v1beta1.ReasonInvalidSpec}, []string{"BAD_REQUEST", "INVALID_ARGUMENT"}},
		{"the manager may not", Problem{Reason: v1beta1.ReasonAccessDenied, RequeueAfter: seldom}, []string{
			"ACCESS_DENIED", "ACL_DENIED", "PRINCIPAL_DISABLED", "ESCALATION", "NOT_WRITABLE", "INVALID_CREDENTIALS", "LOGIN_THROTTLED", "PROOF_URI_MISMATCH",
			"SESSION_NOT_FOUND", "SESSION_EXPIRED", "REVOCATION_STATUS_UNAVAILABLE", "REVOCATION_EVIDENCE_STALE",
		}},
		{"people have to do it", Problem{Reason: v1beta1.ReasonAccessDenied, RequeueAfter: 5 * time.Minute}, []string{"APPROVAL_REQUIRED"}},
		{"nobody knows what it means", Problem{Reason: v1beta1.ReasonProgressing, RequeueAfter: seldom}, []string{"A_CODE_OF_A_LATER_VERSION"}},
	}
	said := map[string]bool{}
	for _, tc := range cases {
		for _, code := range tc.codes {
			said[code] = true
			tc.want.Code, tc.want.Message = code, code+": d"
			p, err := AsProblem(context.Background(), &client.Error{Status: http.StatusConflict, Code: code, Detail: "d"})
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

// TestWhatFailuresMean checks an unavailable key server, and errors from other causes.
func TestWhatFailuresMean(t *testing.T) {
	for _, status := range []int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout} {
		p, err := AsProblem(context.Background(), &client.Error{Status: status, Code: "STORE_UNAVAILABLE", Detail: "d"})
		if err != nil || p.Reason != v1beta1.ReasonKeyServerUnavailable {
			t.Errorf("%d means %+v, %v", status, p, err)
		}
	}
	ours := errors.New("the API server is away")
	if p, err := AsProblem(context.Background(), ours); p != nil || !errors.Is(err, ours) {
		t.Errorf("a failure of the cluster is %+v, %v", p, err)
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if p, err := AsProblem(gone, &client.Error{Status: http.StatusConflict, Code: "NOT_SAVED"}); p != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("a pass that was cancelled is %+v, %v", p, err)
	}
}
