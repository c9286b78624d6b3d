package managed

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
)

// Expirer is implemented by adapters of objects that declare a certificate.
type Expirer[T Object] interface {
	// Expiry answers until when the certificate is valid, nil where that is not
	// known, and how long before it is warned of.
	Expiry(obj T) (notAfter *metav1.Time, warn time.Duration)
}

// Renewer is implemented by adapters of objects whose certificate the key server
// issues anew.
type Renewer[T Object] interface {
	// RenewAfter answers when, nil where that is not known or never.
	RenewAfter(obj T) *metav1.Time
}

// renewal is how long it takes until the object's certificate is to be issued anew, 0
// where it is not. What is due is up to Observe, and to the retries of what failed.
func (r *reconciler[T, D]) renewal(obj T, now time.Time) time.Duration {
	x, ok := any(r.adapter).(Renewer[T])
	if !ok {
		return 0
	}
	at := x.RenewAfter(obj)
	if at == nil {
		return 0
	}
	return max(at.Sub(now), 0)
}

// expiry is until when an object's certificate is valid. Its zero value never ends.
type expiry struct {
	notAfter time.Time
	warn     time.Duration
}

func (r *reconciler[T, D]) expiry(obj T) expiry {
	x, ok := any(r.adapter).(Expirer[T])
	if !ok {
		return expiry{}
	}
	at, warn := x.Expiry(obj)
	if at == nil {
		return expiry{}
	}
	return expiry{at.Time, warn}
}

func (e expiry) expired(now time.Time) bool { return !e.notAfter.IsZero() && !now.Before(e.notAfter) }

func (e expiry) expiring(now time.Time) bool {
	return !e.notAfter.IsZero() && !e.expired(now) && !now.Before(e.notAfter.Add(-e.warn))
}

// next is how long it takes until something is to be said, 0 where nothing is.
func (e expiry) next(now time.Time) time.Duration {
	switch {
	case e.notAfter.IsZero() || e.expired(now):
		return 0
	case e.expiring(now):
		return e.notAfter.Sub(now)
	default:
		return e.notAfter.Add(-e.warn).Sub(now)
	}
}

func (e expiry) message() string {
	return "the certificate is valid until " + e.notAfter.UTC().Format(time.RFC3339)
}

// heed says of an object that is as declared that what it declares has expired.
func (e expiry) heed(res result, now time.Time) result {
	if res.Reason == v1alpha1.ReasonVerified && e.expired(now) {
		res.Reason, res.Message = v1alpha1.ReasonExpired, fmt.Sprintf("%s; the key server holds it as declared", e.message())
	}
	return res
}

// warning keeps the condition Expiring. It answers whether that has just begun.
func (e expiry) warning(conditions *[]metav1.Condition, generation int64, now metav1.Time) bool {
	if !e.expiring(now.Time) {
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionExpiring)
		return false
	}
	begins := !meta.IsStatusConditionTrue(*conditions, v1alpha1.ConditionExpiring)
	SetCondition(conditions, v1alpha1.ConditionExpiring, metav1.ConditionTrue, generation, now,
		Conclusion{Reason: v1alpha1.ReasonExpiring, Message: e.message()})
	return begins
}

var notAfterOf = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "keyserver_object_not_after_seconds",
	Help: "Until when the certificate that an object declares is valid, in Unix time.",
}, []string{"kind", "namespace", "name"})

func init() { metrics.Registry.MustRegister(notAfterOf) }

func (e expiry) observe(kind string, at types.NamespacedName) {
	if e.notAfter.IsZero() {
		notAfterOf.DeleteLabelValues(kind, at.Namespace, at.Name)
		return
	}
	notAfterOf.WithLabelValues(kind, at.Namespace, at.Name).Set(float64(e.notAfter.Unix()))
}
