package reconcile

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/grants"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
)

// Object is an object that declares something about a key server.
type Object interface {
	client.Object
	Managed() (*v1alpha1.ManagedSpec, *v1alpha1.ManagedStatus)
}

// Adapter is what differs from kind to kind. T is the kind, D what one object
// of it declares, with every reference resolved.
//
// An error that is a *connection.Problem, or that the service answered, ends up in the
// object's conditions; any other is the cluster's and is retried.
type Adapter[T Object, D any] interface {
	// Kind describes the kind.
	Kind() Kind
	// Sources returns the Secrets and ConfigMaps that the object reads.
	Sources(obj T) []sources.Ref
	// Owned returns the id of the external object that the status records.
	Owned(obj T) string
	// Claims returns what the object declares to own, in a form that equals
	// another object's exactly if both mean the same external object. want is
	// nil where the declaration was not resolved.
	Claims(obj T, want *D) []string
	// Reach returns what the object would touch on the key server. in.Conn is nil,
	// and want too, as long as the key server must not be asked: then it is what the
	// object says by itself. The external object of one that is being deleted is
	// what its status records.
	Reach(ctx context.Context, in Input, obj T, want *D) (grants.Reach, error)
	// Declared resolves what the object declares.
	Declared(ctx context.Context, in Input, obj T) (D, error)
	// Observe finds the external object in the connection's listings, read no
	// earlier than in.NotBefore. want is nil for an object that is being
	// deleted and whose declaration can no longer be resolved.
	Observe(ctx context.Context, in Input, obj T, want *D) (External, error)
	// Create, Update and Delete are verified writes. They answer with the
	// evidence of the re-read, and note it in the listings.
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
	// Superseded returns the replaced ones, each with the claim that another
	// object would have to make to keep it.
	Superseded(obj T) []SupersededClaim
	// Supersede adds one to the status, to be removed after its overlap.
	Supersede(obj T, old SupersededClaim, now time.Time)
	// Struck removes one from the status.
	Struck(obj T, id string)
}

// Stepwise is implemented by adapters whose creations take more than one write,
// of which the first makes the external object.
type Stepwise interface {
	// Begun reports that nothing of an external object has to be changed or
	// taken away, only added.
	Begun(seen External) bool
}

// Lasting is implemented by adapters whose external objects stay on the key server
// when they have been deleted, and their owner marks with them: keys, which are
// destroyed in time, and are known for ever. A mark that stayed would have the next
// object of the name take what is gone for its own.
type Lasting interface {
	// Lasts does nothing.
	Lasts()
}

// Follower is implemented by adapters whose external objects have parts that the
// change feed tells of as another kind, by other ids. Without it a change of a part
// would wake every object of the key server.
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
	// Spell turns an id of the feed into the spelling that status uses.
	Spell func(schema.HexID) string
	// Parse turns it back.
	Parse func(string) (schema.HexID, error)
	// Awaits are the feed's kinds that objects which are not ready may be
	// waiting for. A change of a kind that it Uses may concern any of them.
	Awaits []string
	Uses   []string
	// Follows are the feed's kinds that tell of its objects by other ids than
	// their own (Follower).
	Follows []string
}

// Input is what an adapter may use to resolve and to observe.
type Input struct {
	Conn      *connection.Connection
	Sources   *sources.Reader
	Cluster   client.Reader // the cache
	Peers     Peering
	Issuer    *sources.Issuer
	Now       time.Time
	NotBefore time.Time
	Deleting  bool
	// Superseded are what a rotation has replaced and not removed yet.
	Superseded []Superseded

	marked func(context.Context) (string, bool, error)
}

// Marked returns the id of an external object that bears the mark of this object: of
// a kind whose external objects have no name, nothing else finds again what was made
// and never recorded, or was recorded in a cluster that is lost. It fails as
// unsupported (connection.IsUnsupported) where the key server keeps no marks.
func (in Input) Marked(ctx context.Context) (id string, marked bool, err error) {
	return in.marked(ctx)
}

// Outcome is what a verified write has read back.
type Outcome struct {
	ID       string
	Evidence string
	// Unfinished is what kept a creation of more than one write from its end:
	// the object has its identity, and the rest is drift.
	Unfinished error
	// Noted takes the place of what was noted in the observation before, where it
	// is not nil.
	Noted any
}
