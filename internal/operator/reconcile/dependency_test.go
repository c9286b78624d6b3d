package reconcile

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

// roleWith returns a role whose condition Ready has this status.
func roleWith(name string, ready metav1.ConditionStatus) *v1beta1.Role {
	r := &v1beta1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}}
	r.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReady, Status: ready}}
	return r
}

// TestConsumersWakeUpByReadinessAndKeys shows which updates of an object concern the objects that need it.
func TestConsumersWakeUpByReadinessAndKeys(t *testing.T) {
	index := &dependencyIndex{keys: func(o client.Object) []string { return []string{o.GetName()} }}
	for name, c := range map[string]struct {
		before, after *v1beta1.Role
		want          bool
	}{
		"unchanged":          {roleWith("a", metav1.ConditionTrue), roleWith("a", metav1.ConditionTrue), false},
		"unready and failed": {roleWith("a", metav1.ConditionUnknown), roleWith("a", metav1.ConditionFalse), false},
		"becomes ready":      {roleWith("a", metav1.ConditionFalse), roleWith("a", metav1.ConditionTrue), true},
		"becomes unready":    {roleWith("a", metav1.ConditionTrue), roleWith("a", metav1.ConditionFalse), true},
		"gets another key":   {roleWith("a", metav1.ConditionTrue), roleWith("b", metav1.ConditionTrue), true},
	} {
		if got := index.readinessChanged().Update(event.UpdateEvent{ObjectOld: c.before, ObjectNew: c.after}); got != c.want {
			t.Errorf("%s: consumers wake up: %t, want %t", name, got, c.want)
		}
	}
}
