package status

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/brief"
)

// MaxMessage is the maximum length of a condition's message.
const MaxMessage = 4096

// Conclusion is the content of the conditions.
type Conclusion struct {
	Reason  v1alpha1.Reason
	Message string
	// Exhausted: so many attempts have failed that the object no
	// longer counts as making progress. It is still retried.
	Exhausted bool
}

// Conclude writes Ready, Verified, Reconciling and Stalled as the
// catalogue of reasons defines them. No other code writes them.
func Conclude(conditions *[]metav1.Condition, generation int64, now metav1.Time, c Conclusion) {
	entry := c.Reason.Entry()
	outlook := entry.Outlook
	if c.Exhausted && outlook == v1alpha1.Retrying {
		outlook = v1alpha1.NeedsHelp
	}
	set := func(kind string, status metav1.ConditionStatus) {
		SetCondition(conditions, kind, status, generation, now, c)
	}
	set(v1alpha1.ConditionReady, entry.Ready)
	set(v1alpha1.ConditionVerified, entry.Verified)
	for kind, when := range map[string]v1alpha1.Outlook{
		v1alpha1.ConditionReconciling: v1alpha1.Retrying,
		v1alpha1.ConditionStalled:     v1alpha1.NeedsHelp,
	} {
		if outlook == when {
			set(kind, metav1.ConditionTrue)
		} else {
			meta.RemoveStatusCondition(conditions, kind)
		}
	}
	meta.RemoveStatusCondition(conditions, v1alpha1.ConditionPaused)
}

// SetCondition writes one condition.
func SetCondition(conditions *[]metav1.Condition, kind string, status metav1.ConditionStatus, generation int64, now metav1.Time, c Conclusion) {
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: kind, Status: status, Reason: string(c.Reason), Message: brief.Clip(c.Message, MaxMessage),
		ObservedGeneration: generation, LastTransitionTime: now,
	})
}

// Stamp returns a time for the status, truncated to the seconds that the API keeps.
func Stamp(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// Pause reports that the object is not checked: whether it is
// as declared is unknown, and the earlier status stays.
func Pause(conditions *[]metav1.Condition, generation int64, now metav1.Time, message string) {
	c := Conclusion{Reason: v1alpha1.ReasonPaused, Message: message}
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionVerified} {
		if kind == v1alpha1.ConditionReady || meta.FindStatusCondition(*conditions, kind) != nil {
			SetCondition(conditions, kind, metav1.ConditionUnknown, generation, now, c)
		}
	}
	SetCondition(conditions, v1alpha1.ConditionPaused, metav1.ConditionTrue, generation, now, c)
}

// Patch writes the status if it differs from read. The patch is bound to the version that was read: a write based on an
// older version is rejected, written is false, and the next reconciliation decides again. written is also false if
// nothing had to be written but the cache has a newer version by now. This manager may have written that version's
// status without receiving the response, and nothing would correct it before the resync.
func Patch(ctx context.Context, c client.Client, read, now client.Object) (written bool, err error) {
	if equality.Semantic.DeepEqual(read, now) {
		newer, err := outrun(ctx, c, read)
		return !newer && err == nil, err
	}
	return patch(ctx, c.Status().Patch, read, now)
}

// outrun reports whether the cache has a newer version of an object than the one that was read. The caller must have
// recorded its conclusion before the call, so that Concerns selects every version that comes later.
func outrun(ctx context.Context, c client.Client, read client.Object) (bool, error) {
	have := read.DeepCopyObject().(client.Object) //nolint:errcheck // a copy has the type of the original
	err := c.Get(ctx, client.ObjectKeyFromObject(read), have)
	if apierrors.IsNotFound(err) {
		return false, nil // an event reports the deletion
	}
	if err != nil {
		return false, err
	}
	order, err := resourceversion.CompareResourceVersion(have.GetResourceVersion(), read.GetResourceVersion())
	if err != nil { // the API server does not use etcd: the order is unknown
		return have.GetResourceVersion() != read.GetResourceVersion(), nil //nolint:nilerr // the versions have no order
	}
	return order > 0, nil
}

// PatchMetadata writes finalizers and annotations, bound to the version that was read.
func PatchMetadata(ctx context.Context, c client.Client, read, now client.Object) (written bool, err error) {
	if equality.Semantic.DeepEqual(read, now) {
		return true, nil
	}
	send := func(ctx context.Context, obj client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
		return c.Patch(ctx, obj, p)
	}
	return patch(ctx, send, read, now)
}

// patch sends the difference from the version that was read.
// It returns false if the object has changed or is deleted.
func patch(
	ctx context.Context,
	send func(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error,
	read, now client.Object,
) (bool, error) {
	err := send(ctx, now, client.MergeFromWithOptions(read, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
