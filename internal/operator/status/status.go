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
	"github.com/keyserver-operator/keyserver-operator/internal/platform/brief"
)

// MaxMessage is what a condition holds.
const MaxMessage = 4096

// Conclusion is what the conditions are to say.
type Conclusion struct {
	Reason  v1alpha1.Reason
	Message string
	// Exhausted: so many tries have failed that the object no longer counts as
	// making progress, though it is still retried.
	Exhausted bool
}

// Conclude writes Ready, Verified, Reconciling and Stalled as the catalogue of
// reasons says. Nothing else writes them.
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

// Stamp returns a status time, cut to what the API keeps.
func Stamp(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// Pause says that nobody looks: whether the object is as declared is not known, and
// what was known of it stays.
func Pause(conditions *[]metav1.Condition, generation int64, now metav1.Time, message string) {
	c := Conclusion{Reason: v1alpha1.ReasonPaused, Message: message}
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionVerified} {
		if kind == v1alpha1.ConditionReady || meta.FindStatusCondition(*conditions, kind) != nil {
			SetCondition(conditions, kind, metav1.ConditionUnknown, generation, now, c)
		}
	}
	SetCondition(conditions, v1alpha1.ConditionPaused, metav1.ConditionTrue, generation, now, c)
}

// Patch writes the status if it differs from what was read. The patch
// is bound to the version that was read: a decision made on an older one is
// refused, and the next pass decides anew. written is false then. It is, too, where
// nothing had to be written on the version that was read, and the cache has a newer one by
// now: its status may be one that this manager has written without an answer, and that
// nobody would put right before the resync.
func Patch(ctx context.Context, c client.Client, read, now client.Object) (written bool, err error) {
	if equality.Semantic.DeepEqual(read, now) {
		newer, err := outrun(ctx, c, read)
		return !newer && err == nil, err
	}
	return patch(ctx, c.Status().Patch, read, now)
}

// outrun reports whether the cache has a newer version of an object than the one that was
// read. The caller has noted by then what it concludes, so that Concerns sees any that is
// newer still.
func outrun(ctx context.Context, c client.Client, read client.Object) (bool, error) {
	have := read.DeepCopyObject().(client.Object) //nolint:errcheck // a copy has the type of what is copied
	err := c.Get(ctx, client.ObjectKeyFromObject(read), have)
	if apierrors.IsNotFound(err) {
		return false, nil // an event tells of that
	}
	if err != nil {
		return false, err
	}
	order, err := resourceversion.CompareResourceVersion(have.GetResourceVersion(), read.GetResourceVersion())
	if err != nil { // no etcd: which is newer is not known
		return have.GetResourceVersion() != read.GetResourceVersion(), nil //nolint:nilerr // it tells only that they have no order
	}
	return order > 0, nil
}

// PatchMetadata writes finalizers and annotations, with the same guard.
func PatchMetadata(ctx context.Context, c client.Client, read, now client.Object) (written bool, err error) {
	if equality.Semantic.DeepEqual(read, now) {
		return true, nil
	}
	send := func(ctx context.Context, obj client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
		return c.Patch(ctx, obj, p)
	}
	return patch(ctx, send, read, now)
}

// patch sends a difference from the version that was read.
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
