package status

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

// Concerns selects the updates that require a reconciliation: changes by users, a removed finalizer, and a status that
// differs from the one that this manager recorded last. Such a status may come from this manager itself, if it did not
// receive the response of its write.
func Concerns(p *Population) predicate.Predicate {
	return predicate.Or(declarationChanged(), predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		if finalizerRemoved(e.ObjectOld, e.ObjectNew) {
			return true
		}
		ready := meta.FindStatusCondition(conditionsOf(e.ObjectNew), v1beta1.ConditionReady)
		return ready != nil && p.Differs(client.ObjectKeyFromObject(e.ObjectNew), ready.Reason)
	}})
}

// finalizerRemoved reports whether a finalizer of the manager was removed from an object that is not being deleted. The manager
// itself removes a finalizer only from an object that owns nothing.
func finalizerRemoved(old, now client.Object) bool {
	return now.GetDeletionTimestamp().IsZero() && slices.ContainsFunc([]string{v1beta1.FinalizerExternal, v1beta1.FinalizerInUse}, func(f string) bool {
		return controllerutil.ContainsFinalizer(old, f) && !controllerutil.ContainsFinalizer(now, f)
	})
}

func conditionsOf(o client.Object) []metav1.Condition {
	switch o := o.(type) {
	case interface {
		Managed() (*v1beta1.ManagedSpec, *v1beta1.ManagedStatus)
	}:
		_, is := o.Managed()
		return is.Conditions
	case *v1beta1.KeyServer:
		return o.Status.Conditions
	default:
		return nil
	}
}

// declarationChanged selects the changes that only users make.
func declarationChanged() predicate.Predicate {
	return predicate.Or[client.Object](
		predicate.GenerationChangedPredicate{},
		predicate.NewPredicateFuncs(func(client.Object) bool { return false }),
		predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
			for _, a := range []string{
				v1beta1.AnnotationPaused, v1beta1.AnnotationAbandon, v1beta1.AnnotationReconcileRequestedAt,
			} {
				was, had := e.ObjectOld.GetAnnotations()[a]
				is, has := e.ObjectNew.GetAnnotations()[a]
				if was != is || had != has {
					return true
				}
			}
			return !e.ObjectOld.GetDeletionTimestamp().Equal(e.ObjectNew.GetDeletionTimestamp())
		}},
	)
}
