package reconcile

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
)

func TestFailuresBackOffAndForget(t *testing.T) {
	f := newFailures()
	obj := &v1beta1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", UID: "u", Generation: 1}}
	var waits []time.Duration
	for n := range 12 {
		if got, want := f.exhausted(obj), n >= 6; got != want {
			t.Errorf("after %d failures the object is stalled: %t, want %t", n, got, want)
		}
		waits = append(waits, f.add(obj, "", false, noon, connection.DefaultTiming).Truncate(time.Second))
	}
	for i, w := range waits {
		want := min(time.Second<<i, 5*time.Minute)
		if w < want || w > want+want/10+time.Second {
			t.Errorf("wait %d is %s, want about %s", i, w, want)
		}
	}
	for reason, change := range map[string]func(*v1beta1.Role){
		"another spec":   func(r *v1beta1.Role) { r.Generation = 2 },
		"another object": func(r *v1beta1.Role) { r.UID = "v" },
	} {
		other := obj.DeepCopy()
		change(other)
		if n, _ := f.of(other, ""); n != 0 {
			t.Errorf("%s inherits %d failures", reason, n)
		}
	}
	if n, _ := f.of(obj, "now"); n != 0 {
		t.Errorf("a requested reconcile inherits %d failures", n)
	}
}

// TestPausesAreSpread checks that objects created together are not retried together.
func TestPausesAreSpread(t *testing.T) {
	for name, draw := range map[string]func() time.Duration{
		"resync": func() time.Duration { return again(time.Hour, time.Hour).RequeueAfter },
		"failure": func() time.Duration {
			return newFailures().add(&v1beta1.Role{}, "", false, noon, connection.DefaultTiming)
		},
	} {
		first := draw()
		for i := 0; draw() == first; i++ {
			if i == 100 {
				t.Errorf("every %s is %s", name, first)
				break
			}
		}
	}
}
