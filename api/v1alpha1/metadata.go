package v1alpha1

// Annotations that people set.
const (
	// AnnotationPaused, with any value but "false", stops all work on the
	// object: nothing is read, written or deleted for it. A condition says so.
	AnnotationPaused = "trust.keyserver.dev/paused"
	// AnnotationReconcileRequestedAt asks for one reconcile that re-reads the
	// key server. Any new value counts, a timestamp is usual. The value is
	// acknowledged in status.lastHandledReconcileAt.
	AnnotationReconcileRequestedAt = "trust.keyserver.dev/reconcile-requested-at"
	// AnnotationAbandon, with any value but "false", lets a deletion finish
	// without touching the key server: what is there stays there.
	AnnotationAbandon = "trust.keyserver.dev/abandon"
)

// AnnotationCreatePending is set by the manager together with the finalizer,
// before it creates something outside. Its value binds the attempt to this
// object and to what it declared, so that a manager killed between the creation
// and the status knows afterwards that the creation was its own. Where the key
// server keeps owner marks these tell, and the annotation is taken off.
const AnnotationCreatePending = "trust.keyserver.dev/create-pending"

// AnnotationPublishedBy names, on what the manager publishes in the cluster, the object
// that it does so for: KIND/NAMESPACE/NAME. Nothing without it is written or deleted.
const AnnotationPublishedBy = "trust.keyserver.dev/published-by"

// Finalizers.
const (
	// FinalizerExternal holds an object until what it made outside is dealt
	// with as its deletion policy says. It is set before the first write. It is
	// removed again if that write finds something that must not be taken over.
	FinalizerExternal = "trust.keyserver.dev/external"
	// FinalizerInUse holds a KeyServer while objects refer to it.
	FinalizerInUse = "trust.keyserver.dev/in-use"
)
