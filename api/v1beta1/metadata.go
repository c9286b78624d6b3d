package v1beta1

// Annotations that users set.
const (
	// AnnotationPaused, with any value but "false", stops all work on the object: the manager reads, writes and deletes
	// nothing for it. The condition Paused reports this.
	AnnotationPaused = "trust.keyserver.dev/paused"
	// AnnotationReconcileRequestedAt requests one reconcile that reads the key server again. Any new value is a
	// request; a timestamp is usual. After the reconcile, status.lastHandledReconcileAt has the value.
	AnnotationReconcileRequestedAt = "trust.keyserver.dev/reconcile-requested-at"
	// AnnotationAbandon, with any value but "false", lets a deletion finish and keeps the
	// external object on the key server.
	AnnotationAbandon = "trust.keyserver.dev/abandon"
)

// AnnotationCreatePending is set by the manager together with the finalizer, before it creates an external object. Its
// value identifies the object and its declaration. If the manager is killed between the creation and the status write,
// the value shows later that this object created the external object. If the key server supports owner marks, the owner
// mark shows this instead, and the manager removes the annotation.
const AnnotationCreatePending = "trust.keyserver.dev/create-pending"

// AnnotationPublishedBy is on each object that the manager publishes in the cluster. Its value names the declaring
// object as KIND/NAMESPACE/NAME. The manager changes and deletes no published object without this annotation.
const AnnotationPublishedBy = "trust.keyserver.dev/published-by"

// Finalizers.
const (
	// FinalizerExternal keeps an object in the cluster until its external object is deleted or released, as
	// deletionPolicy says. It is set before the first write. It is removed again if that write finds an external object
	// that must not be taken over.
	FinalizerExternal = "trust.keyserver.dev/external"
	// FinalizerInUse keeps a KeyServer in the cluster while objects refer to it.
	FinalizerInUse = "trust.keyserver.dev/in-use"
)
