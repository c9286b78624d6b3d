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

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/brief"
)

// MaxMessage is the maximum length of a condition's message.
const MaxMessage = 4096

// Conclusion is the input for the conditions of an object.
type Conclusion struct {
	Reason  v1beta1.Reason
	Message string
	// Exhausted means that the object counts as stalled after many failed attempts. It is still retried.
	Exhausted bool
}

// Conclude sets the conditions Ready, Verified, Reconciling and Stalled as the catalogue defines them for the reason.
// No other code sets them.
func Conclude(conditions *[]metav1.Condition, generation int64, now metav1.Time, c Conclusion) {
	entry := c.Reason.Entry()
	outlook := entry.Outlook
	if c.Exhausted && outlook == v1beta1.Retrying {
		outlook = v1beta1.NeedsHelp
	}
	set := func(kind string, status metav1.ConditionStatus) {
		SetCondition(conditions, kind, status, generation, now, c)
	}
	set(v1beta1.ConditionReady, entry.Ready)
	set(v1beta1.ConditionVerified, entry.Verified)
	for kind, when := range map[string]v1beta1.Outlook{
		v1beta1.ConditionReconciling: v1beta1.Retrying,
		v1beta1.ConditionStalled:     v1beta1.NeedsHelp,
	} {
		if outlook == when {
			set(kind, metav1.ConditionTrue)
		} else {
			meta.RemoveStatusCondition(conditions, kind)
		}
	}
	meta.RemoveStatusCondition(conditions, v1beta1.ConditionPaused)
}

// SetCondition writes one condition.
func SetCondition(conditions *[]metav1.Condition, kind string, status metav1.ConditionStatus, generation int64, now metav1.Time, c Conclusion) {
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: kind, Status: status, Reason: string(c.Reason), Message: brief.Clip(c.Message, MaxMessage),
		ObservedGeneration: generation, LastTransitionTime: now,
	})
}

// Stamp truncates a time to seconds, which is the precision of the API.
func Stamp(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// Pause sets the conditions of a paused object. Ready and Verified become Unknown, because the object is not checked.
// Reconciling and Stalled stay: they describe the spec that the manager last processed.
func Pause(conditions *[]metav1.Condition, generation int64, now metav1.Time, message string) {
	c := Conclusion{Reason: v1beta1.ReasonPaused, Message: message}
	for _, kind := range []string{v1beta1.ConditionReady, v1beta1.ConditionVerified} {
		if kind == v1beta1.ConditionReady || meta.FindStatusCondition(*conditions, kind) != nil {
			SetCondition(conditions, kind, metav1.ConditionUnknown, generation, now, c)
		}
	}
	SetCondition(conditions, v1beta1.ConditionPaused, metav1.ConditionTrue, generation, now, c)
}

// Patch writes the status if now differs from read. If the object has changed since it was read, the write is rejected
// and written is false: the next reconciliation decides again. written is also false if there is nothing to write but
// the cache has a newer version. That version may have another status, from a write of this manager whose response was
// lost, and only a resync would correct it.
func Patch(ctx context.Context, c client.Client, read, now client.Object) (written bool, err error) {
	if equality.Semantic.DeepEqual(read, now) {
		newer, err := cacheIsNewer(ctx, c, read)
		return !newer && err == nil, err
	}
	return patch(ctx, c.Status().Patch, read, now)
}

// cacheIsNewer reports whether the cache has a newer version of the object than read. The caller must have recorded its
// conclusion already, so that Concerns selects all later versions.
func cacheIsNewer(ctx context.Context, c client.Client, read client.Object) (bool, error) {
	have := read.DeepCopyObject().(client.Object) //nolint:errcheck // a copy has the type of the original
	err := c.Get(ctx, client.ObjectKeyFromObject(read), have)
	if apierrors.IsNotFound(err) {
		return false, nil // the deletion causes an event
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

// PatchMetadata writes finalizers and annotations. If the object has changed since it was read, written is false.
func PatchMetadata(ctx context.Context, c client.Client, read, now client.Object) (written bool, err error) {
	if equality.Semantic.DeepEqual(read, now) {
		return true, nil
	}
	send := func(ctx context.Context, obj client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
		return c.Patch(ctx, obj, p)
	}
	return patch(ctx, send, read, now)
}

// patch sends the difference between read and now. It returns false if the object has changed since it was read, or no
// longer exists.
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
