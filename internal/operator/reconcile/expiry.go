package reconcile

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/status"
)

// Expirer is implemented by adapters of objects that declare a certificate.
type Expirer[T Object] interface {
	// Expiry returns the validity period of the certificate. An unknown time is nil. warn is how long before notAfter the
	// condition Expiring is set.
	Expiry(obj T) (notBefore, notAfter *metav1.Time, warn time.Duration)
}

// Renewer is implemented by adapters of objects whose certificate the key server reissues.
type Renewer[T Object] interface {
	// RenewAfter returns the time of the next reissue. It is nil if the time is unknown or there is no reissue.
	RenewAfter(obj T) *metav1.Time
}

// renewal returns the time until the certificate is reissued. It is 0 if there is no reissue, or if the reissue is due
// already: then Observe and the retries of failed writes handle the reissue.
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

// Aging is implemented by adapters of objects that become useless when something else expires, even if the external
// object is unchanged.
type Aging[T Object] interface {
	// Terms returns the things on which the object's use depends, according to its status.
	Terms(obj T) []Term
}

// Term is something on which an object's use depends, with its end.
type Term struct {
	Until   time.Time // the end; the zero time is in the past
	Warn    time.Duration
	Reason  v1beta1.Reason // reason for Ready=False after the end
	Message string         // what ends, and when
}

// expiry is the usable period of a part of an object. The zero value has no end.
type expiry struct {
	notBefore time.Time // start of the certificate's validity
	notAfter  time.Time
	warn      time.Duration
	term      *Term // nil if this is the expiry of the certificate
}

// expiries has the expiry of the certificate and of all terms of an object.
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

// pending reports whether the certificate is not yet valid.
func (e expiry) pending(now time.Time) bool { return now.Before(e.notBefore) && !e.expired(now) }

// next returns the time until the next change that the status must report, or 0 if there is none.
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

func (e expiry) reason() v1beta1.Reason {
	if e.term != nil {
		return e.term.Reason
	}
	return v1beta1.ReasonExpired
}

// applyExpiry changes the reason of a verified object if one of its parts has expired or is not yet valid.
func (all expiries) applyExpiry(res result, now time.Time) result {
	for _, e := range all {
		if res.Reason == v1beta1.ReasonVerified && e.expired(now) {
			res.Reason, res.Message = e.reason(), e.message()
			if e.term == nil {
				res.Message += "; the key server holds it as declared"
			}
		} else if res.Reason == v1beta1.ReasonVerified && e.pending(now) {
			res.Reason = v1beta1.ReasonNotYetValid
			res.Message = "the certificate is valid from " + e.notBefore.UTC().Format(time.RFC3339) + "; the key server holds it as declared"
		}
	}
	return res
}

// warning sets or removes the condition Expiring, whose message describes the expiry that ends first. begins means that
// the message is new.
func (all expiries) warning(conditions *[]metav1.Condition, generation int64, now metav1.Time) (message string, begins bool) {
	first := -1
	for i, e := range all {
		if e.expiring(now.Time) && (first < 0 || e.notAfter.Before(all[first].notAfter)) {
			first = i
		}
	}
	if first < 0 {
		meta.RemoveStatusCondition(conditions, v1beta1.ConditionExpiring)
		return "", false
	}
	message = all[first].message()
	said := meta.FindStatusCondition(*conditions, v1beta1.ConditionExpiring)
	begins = said == nil || said.Message != message
	status.SetCondition(conditions, v1beta1.ConditionExpiring, metav1.ConditionTrue, generation, now,
		status.Conclusion{Reason: v1beta1.ReasonExpiring, Message: message})
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
