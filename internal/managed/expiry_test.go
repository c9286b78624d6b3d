package managed

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// TestWhatEnds: until when a certificate is valid is a metric as long as its object is
// there, and what is to be said of it comes in time.
func TestWhatEnds(t *testing.T) {
	const name = "keyserver_object_not_after_seconds"
	at := types.NamespacedName{Namespace: "default", Name: "partners"}
	count := func(want int) {
		t.Helper()
		if n, err := testutil.GatherAndCount(metrics.Registry, name); err != nil || n != want {
			t.Errorf("%d of %s, want %d: %v", n, name, want, err)
		}
	}
	e := expiry{notAfter: noon.Add(48 * time.Hour), warn: 24 * time.Hour}
	e.observe("TrustedCA", at)
	count(1)
	expiry{}.observe("TrustedCA", at)
	count(0)
	for after, want := range map[time.Duration]time.Duration{0: 24 * time.Hour, 24 * time.Hour: 24 * time.Hour, 47 * time.Hour: time.Hour, 48 * time.Hour: 0} {
		if got := e.next(noon.Add(after)); got != want {
			t.Errorf("%s later something is to be said after %s, want %s", after, got, want)
		}
	}
}
