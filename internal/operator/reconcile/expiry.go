package reconcile

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/status"
)

// Expirer is implemented by adapters of objects that declare a certificate.
type Expirer[T Object] interface {
	// Expiry returns the validity period of the certificate, with nil for an unknown time. warn is how long before the
	// end a warning is given.
	Expiry(obj T) (notBefore, notAfter *metav1.Time, warn time.Duration)
}

// Renewer is implemented by adapters of objects whose certificate the key server reissues.
type Renewer[T Object] interface {
	// RenewAfter returns when the certificate is reissued, nil if that is unknown or never.
	RenewAfter(obj T) *metav1.Time
}

// renewal returns the time until the object's certificate has to be reissued. It is 0 if the certificate is never
// reissued. It is also 0 if the reissue is due already: then Observe and the retries of failed writes handle it.
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

// Aging is implemented by adapters of objects that are useless without
// something else that ends, even if the key server holds them unchanged.
type Aging[T Object] interface {
	// Terms returns, from the status, the things that must be in force for the object to be useful.
	Terms(obj T) []Term
}

// Term is something that must be in force for the object to be useful, and the time until which it is in force.
type Term struct {
	Until   time.Time // not in force from then on; the zero time is past
	Warn    time.Duration
	Reason  v1alpha1.Reason // why the object is not Ready then
	Message string          // what ends, and when
}

// expiry says until when a part of an object is usable. Its zero value never ends.
type expiry struct {
	notBefore time.Time // of the certificate
	notAfter  time.Time
	warn      time.Duration
	term      *Term // nil for the certificate
}

// expiries has every expiry of an object.
type expiries []expiry

// expiry returns the expiry of the object's certificate.
func (r *reconciler[T, D]) expiry(obj T) expiry {
	x, ok := any(r.adapter).(Expirer[T])
	if !ok {
		return expiry{}
	}
	from, until, warn := x.Expiry(obj)
	if until == nil {
		return expiry{}
	}
	e := expiry{notAfter: until.Time, warn: warn}
	if from != nil {
		e.notBefore = from.Time
	}
	return e
}

func (r *reconciler[T, D]) expiries(obj T) expiries {
	all := expiries{r.expiry(obj)}
	if x, ok := any(r.adapter).(Aging[T]); ok {
		for _, t := range x.Terms(obj) {
			all = append(all, expiry{notAfter: t.Until, warn: t.Warn, term: &t})
		}
	}
	return all
}

func (e expiry) ends() bool { return !e.notAfter.IsZero() || e.term != nil }

func (e expiry) expired(now time.Time) bool { return e.ends() && !now.Before(e.notAfter) }

func (e expiry) expiring(now time.Time) bool {
	return e.ends() && !e.expired(now) && !now.Before(e.notAfter.Add(-e.warn))
}

// pending reports whether the certificate becomes valid later.
func (e expiry) pending(now time.Time) bool { return now.Before(e.notBefore) && !e.expired(now) }

// next returns the time until the next change to report, or 0 if there is none.
func (e expiry) next(now time.Time) time.Duration {
	switch {
	case e.pending(now):
		return e.notBefore.Sub(now)
	case !e.ends() || e.expired(now):
		return 0
	case e.expiring(now):
		return e.notAfter.Sub(now)
	default:
		return e.notAfter.Add(-e.warn).Sub(now)
	}
}

func (e expiry) message() string {
	if e.term != nil {
		return e.term.Message
	}
	return "the certificate is valid until " + e.notAfter.UTC().Format(time.RFC3339)
}

func (e expiry) reason() v1alpha1.Reason {
	if e.term != nil {
		return e.term.Reason
	}
	return v1alpha1.ReasonExpired
}

// heed reports, for an object that is as declared, that a part
// of it has expired or is not valid yet.
func (all expiries) heed(res result, now time.Time) result {
	for _, e := range all {
		if res.Reason == v1alpha1.ReasonVerified && e.expired(now) {
			res.Reason, res.Message = e.reason(), e.message()
			if e.term == nil {
				res.Message += "; the key server holds it as declared"
			}
		} else if res.Reason == v1alpha1.ReasonVerified && e.pending(now) {
			res.Reason = v1alpha1.ReasonNotYetValid
			res.Message = "the certificate is valid from " + e.notBefore.UTC().Format(time.RFC3339) + "; the key server holds it as declared"
		}
	}
	return res
}

// warning sets or removes the condition Expiring, which describes the
// expiry that ends first. begins says whether the message is new.
func (all expiries) warning(conditions *[]metav1.Condition, generation int64, now metav1.Time) (message string, begins bool) {
	first := -1
	for i, e := range all {
		if e.expiring(now.Time) && (first < 0 || e.notAfter.Before(all[first].notAfter)) {
			first = i
		}
	}
	if first < 0 {
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionExpiring)
		return "", false
	}
	message = all[first].message()
	said := meta.FindStatusCondition(*conditions, v1alpha1.ConditionExpiring)
	begins = said == nil || said.Message != message
	status.SetCondition(conditions, v1alpha1.ConditionExpiring, metav1.ConditionTrue, generation, now,
		status.Conclusion{Reason: v1alpha1.ReasonExpiring, Message: message})
	return message, begins
}

var notAfterOf = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "keyserver_object_not_after_seconds",
	Help: "Expiry time (notAfter) of the certificate that an object declares, in Unix seconds.",
}, []string{"kind", "namespace", "name"})

func init() { metrics.Registry.MustRegister(notAfterOf) }

func (e expiry) observe(kind string, at types.NamespacedName) {
	if e.notAfter.IsZero() {
		notAfterOf.DeleteLabelValues(kind, at.Namespace, at.Name)
		return
	}
	notAfterOf.WithLabelValues(kind, at.Namespace, at.Name).Set(float64(e.notAfter.Unix()))
}
