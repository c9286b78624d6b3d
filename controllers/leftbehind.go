package controllers

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/brief"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/status"
)

// recordLeftBehind reports external objects whose objects were deleted without their finalizer. It deletes nothing: the
// user who removed the finalizer may want to keep the external object.
func (r *keyServerReconciler) recordLeftBehind(ctx context.Context, ks *v1beta1.KeyServer, conn *connection.Connection) error {
	var left []string
	for _, c := range r.controllers {
		names, err := c.LeftBehind(ctx, ks.Name, conn)
		if why, other := connection.AsProblem(ctx, err); other != nil {
			return other
		} else if why != nil {
			return nil //nolint:nilerr // unknown: the condition stays as it is
		}
		left = append(left, names...)
	}
	if len(left) == 0 {
		meta.RemoveStatusCondition(&ks.Status.Conditions, v1beta1.ConditionLeftBehind)
		return nil
	}
	say := status.Conclusion{Reason: v1beta1.ReasonConflict, Message: "objects that were deleted in the cluster without their finalizer are still on the key server: " +
		brief.List(left) + "; delete them there, or create the resources again"}
	before := meta.FindStatusCondition(ks.Status.Conditions, v1beta1.ConditionLeftBehind)
	if before == nil || before.Message != say.Message {
		status.LeftBehindEvent(say.Message).Record(r.Recorder, ks)
	}
	status.SetCondition(&ks.Status.Conditions, v1beta1.ConditionLeftBehind, metav1.ConditionTrue, ks.Generation, status.Stamp(r.Clock.Now()), say)
	return nil
}
