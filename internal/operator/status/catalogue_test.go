package status

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

// TestConcludeEveryReason checks that kubectl, Flux and Argo CD derive the same state from the conditions of a reason.
func TestConcludeEveryReason(t *testing.T) {
	now := metav1.Now()
	for _, entry := range v1beta1.Reasons {
		t.Run(string(entry.Reason), func(t *testing.T) {
			if entry.Next == "" {
				t.Error("the catalogue does not say what to do next")
			}
			conditions := []metav1.Condition{{Type: v1beta1.ConditionStalled, Status: metav1.ConditionTrue}}
			Conclude(&conditions, 7, now, Conclusion{Reason: entry.Reason, Message: "m"})
			ready := meta.FindStatusCondition(conditions, v1beta1.ConditionReady)
			if ready == nil || ready.Status != entry.Ready || ready.ObservedGeneration != 7 || ready.Reason != string(entry.Reason) {
				t.Fatalf("Ready is %+v", ready)
			}
			reconciling := meta.IsStatusConditionTrue(conditions, v1beta1.ConditionReconciling)
			stalled := meta.IsStatusConditionTrue(conditions, v1beta1.ConditionStalled)
			if got, want := [2]bool{reconciling, stalled}, [2]bool{entry.Outlook == v1beta1.Retrying, entry.Outlook == v1beta1.NeedsHelp}; got != want {
				t.Errorf("Reconciling, Stalled are %v, the outlook is %s", got, entry.Outlook)
			}
			if entry.Ready == metav1.ConditionTrue && (reconciling || stalled) {
				t.Error("a ready object is neither in progress nor stalled")
			}
		})
	}
}

func TestUnknownReasonIsNeverReady(t *testing.T) {
	if e := v1beta1.Reason("Verifed").Entry(); e.Ready == metav1.ConditionTrue {
		t.Error("a misspelt reason makes objects ready")
	}
}

func TestExhaustedIsStalled(t *testing.T) {
	var conditions []metav1.Condition
	Conclude(&conditions, 1, metav1.Now(), Conclusion{Reason: v1beta1.ReasonNotVerified, Exhausted: true})
	if !meta.IsStatusConditionTrue(conditions, v1beta1.ConditionStalled) {
		t.Error("an object whose retries are exhausted must not look in progress for ever")
	}
}
