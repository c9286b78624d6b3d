package reconcile

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

// TestNotYetValid checks that an object with a certificate that is not yet valid is not Ready, and is reconciled when
// the certificate becomes valid.
func TestNotYetValid(t *testing.T) {
	e := expiry{notBefore: noon.Add(time.Hour), notAfter: noon.Add(48 * time.Hour), warn: 72 * time.Hour}
	for after, want := range map[time.Duration]struct {
		reason v1beta1.Reason
		next   time.Duration
	}{
		0:              {v1beta1.ReasonNotYetValid, time.Hour},
		time.Hour:      {v1beta1.ReasonVerified, 47 * time.Hour},
		48 * time.Hour: {v1beta1.ReasonExpired, 0},
	} {
		now := noon.Add(after)
		res := expiries{e}.applyExpiry(result{Decision: Decision{Reason: v1beta1.ReasonVerified}}, now)
		if res.Reason != want.reason || e.next(now) != want.next {
			t.Errorf("%s later: %s, again after %s; want %v", after, res.Reason, e.next(now), want)
		}
		if want.reason == v1beta1.ReasonNotYetValid && !strings.Contains(res.Message, "valid from "+e.notBefore.UTC().Format(time.RFC3339)) {
			t.Errorf("the message does not say when: %s", res.Message)
		}
	}
}

// TestWhatEnds checks that the metric of a certificate's expiry exists as long as its object, and that reports about
// the expiry are due in time.
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
