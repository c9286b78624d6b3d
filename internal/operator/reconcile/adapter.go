package reconcile

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/grants"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
)

// Object is an object that declares something about a key server.
type Object interface {
	client.Object
	Managed() (*v1alpha1.ManagedSpec, *v1alpha1.ManagedStatus)
}

// Adapter has the code that differs between kinds. T is the kind, and
// D is the declaration of one object with every reference resolved.
//
// A *connection.Problem and an error response of the service end up in the
// object's conditions. Any other error comes from the cluster and is retried.
type Adapter[T Object, D any] interface {
	// Kind describes the kind.
	Kind() Kind
	// Sources returns the Secrets and ConfigMaps that the object reads.
	Sources(obj T) []sources.Ref
	// Owned returns the id of the external object that the status records.
	Owned(obj T) string
	// Claims returns what the object declares to own, as strings. Claims of two objects are equal exactly if both mean
	// the same external object. want is nil if the declaration was not resolved.
	Claims(obj T, want *D) []string
	// Scope returns the scope that the object would touch on the key server. in.Conn and want
	// are nil until a grant allows requests to the key server; then only the object's own fields
	// count. For a deleted object, the external object is the one that its status records.
	Scope(ctx context.Context, in Input, obj T, want *D) (grants.Scope, error)
	// Declared resolves what the object declares.
	Declared(ctx context.Context, in Input, obj T) (D, error)
	// Observe finds the external object in the connection's listings, read no
	// earlier than in.NotBefore. want is nil for an object that is being
	// deleted and whose declaration can no longer be resolved.
	Observe(ctx context.Context, in Input, obj T, want *D) (External, error)
	// Create, Update and Delete are verified writes. They return
	// the evidence of the re-read and record it in the listings.
	Create(ctx context.Context, c *connection.Connection, want D) (Outcome, error)
	Update(ctx context.Context, c *connection.Connection, want D, seen External) (Outcome, error)
	Delete(ctx context.Context, c *connection.Connection, obj T, id string) (Outcome, error)
	// Record writes the kind's own status fields. owner says whether seen
	// belongs to the object (or is observed for it).
	Record(obj T, want *D, seen External, owner bool, now time.Time)
}

// Rotator is implemented by adapters whose objects replace one external
// object by another and keep both for a while.
type Rotator[T Object] interface {
	// Superseded returns the replaced external objects, each with its claim. If another object makes the same claim,
	// the external object is kept for it.
	Superseded(obj T) []SupersededClaim
	// Supersede adds a replaced external object to the status. It is removed after its overlap.
	Supersede(obj T, old SupersededClaim, now time.Time)
	// RemoveSuperseded removes a replaced external object from the status.
	RemoveSuperseded(obj T, id string)
}

// Stepwise is implemented by adapters that create an external object
// in several writes. The first write creates the object itself.
type Stepwise interface {
	// NeedsOnlyAdditions reports whether the external object only needs
	// additions: nothing of it has to be changed or removed.
	NeedsOnlyAdditions(seen External) bool
}

// Lasting is implemented by adapters whose external objects stay on the key
// server after they are deleted, with their owner marks. Such objects are keys:
// they are destroyed later and stay known forever. The mark has to be released,
// or the next object of the same name would take the deleted one for its own.
type Lasting interface {
	// Lasts does nothing.
	Lasts()
}

// Follower is implemented by adapters whose external objects have parts
// that the change feed reports under another kind and other ids. Without
// it, a change of a part would wake every object of the key server.
type Follower[T Object] interface {
	// Follows returns the parts of the object's external object.
	Follows(obj T) []Followed
}

// Followed is a part of an external object as the change feed names it.
type Followed struct {
	Feed string // the feed's kind, one of those that Kind.Follows lists
	ID   string // 16 hexadecimal digits
}

// SupersededClaim is a replaced external object and the claim on it.
type SupersededClaim struct {
	Superseded
	Claim string
}

// Kind describes a kind of object.
type Kind struct {
	Name string // as in v1alpha1.Kinds: "TrustedCA"
	Feed string // kind of its changes in the change feed
	// FormatID formats an id of the feed in the way that the status uses.
	FormatID func(schema.HexID) string
	// ParseID is the inverse of FormatID.
	ParseID func(string) (schema.HexID, error)
	// Awaits are the kinds of the feed that objects may wait for while they
	// are not ready. A change of a kind in Uses may concern every object.
	Awaits []string
	Uses   []string
	// Follows are the kinds of the feed that report parts of this
	// kind's objects under other ids (Follower).
	Follows []string
}

// Input has what an adapter may use to resolve a declaration and to observe.
type Input struct {
	Conn      *connection.Connection
	Sources   *sources.Reader
	Cluster   client.Reader // the cache
	Peers     Peering
	Issuer    *sources.Issuer
	Now       time.Time
	NotBefore time.Time
	Deleting  bool
	// Superseded are the external objects that a rotation has replaced but not removed yet.
	Superseded []Superseded

	marked func(context.Context) (string, bool, error)
}

// Marked returns the id of an external object that bears the mark of this object. If external objects of the kind have
// no name, only the mark finds an external object whose id was never recorded, or was recorded in a cluster that is
// lost. If the key server keeps no marks, the error is an unsupported one (connection.IsUnsupported).
func (in Input) Marked(ctx context.Context) (id string, marked bool, err error) {
	return in.marked(ctx)
}

// Outcome is the result of a verified write, according to the re-read.
type Outcome struct {
	ID       string
	Evidence string
	// Unfinished is the error that interrupted a creation of several writes. The external object exists under its id;
	// the missing parts are drift.
	Unfinished error
	// AdapterData replaces the AdapterData of the observation before the write, unless it is nil.
	AdapterData any
}
