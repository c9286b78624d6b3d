package reconcile

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/grants"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
)

// Object is an object of a kind that declares something on a key server.
type Object interface {
	client.Object
	Managed() (*v1beta1.ManagedSpec, *v1beta1.ManagedStatus)
}

// Adapter has the code that differs between kinds. T is the kind. D is the declaration of one object after its
// references are resolved.
//
// If a method returns a *connection.Problem or an error response of the key server, the object's conditions report it.
// Any other error comes from the Kubernetes cluster, and the pass is retried.
type Adapter[T Object, D any] interface {
	// Kind returns the description of the kind.
	Kind() Kind
	// Sources returns the Secrets and ConfigMaps that the object reads.
	Sources(obj T) []sources.Ref
	// Owned returns the id of the external object that the status records.
	Owned(obj T) string
	// Claims returns identifiers of the external object that the object declares to own. Two objects have a common claim
	// exactly if both mean the same external object. want is nil if the declaration could not be resolved.
	Claims(obj T, want *D) []string
	// Scope returns the names and operations that the object needs on the key server. Until a grant allows requests to the
	// key server, in.Conn and want are nil, and the scope depends only on the object's own fields. For an object that is
	// being deleted, the external object is the one in its status.
	Scope(ctx context.Context, in Input, obj T, want *D) (grants.Scope, error)
	// Declared resolves the references of the object and returns its declaration.
	Declared(ctx context.Context, in Input, obj T) (D, error)
	// Observe finds the external object in the connection's listings, in a reading that is not older than in.NotBefore.
	// want is nil if the object is being deleted and its declaration can no longer be resolved.
	Observe(ctx context.Context, in Input, obj T, want *D) (External, error)
	// Create, Update and Delete are verified writes. They return the evidence of the second read and update the listings.
	Create(ctx context.Context, c *connection.Connection, want D) (Outcome, error)
	Update(ctx context.Context, c *connection.Connection, want D, seen External) (Outcome, error)
	Delete(ctx context.Context, c *connection.Connection, obj T, id string) (Outcome, error)
	// Record writes the status fields that only this kind has. owner means that the object owns seen, or only observes it.
	Record(obj T, want *D, seen External, owner bool, now time.Time)
}

// Rotator is implemented by adapters whose objects replace one external object by another, and keep the old one for an
// overlap time.
type Rotator[T Object] interface {
	// Superseded returns the replaced external objects, each with its claim. A replaced external object is not deleted
	// while another object has the same claim.
	Superseded(obj T) []SupersededClaim
	// Supersede adds a replaced external object to the status, with the end of its overlap time.
	Supersede(obj T, old SupersededClaim, now time.Time)
	// RemoveSuperseded removes a replaced external object from the status.
	RemoveSuperseded(obj T, id string)
}

// Stepwise is implemented by adapters that create an external object
// in several writes. The first write creates the object itself.
type Stepwise interface {
	// NeedsOnlyAdditions reports whether the external object differs from the declaration only by missing parts.
	NeedsOnlyAdditions(seen External) bool
}

// Lasting is implemented by adapters whose external objects stay on the key server after their deletion, with their
// owner marks: keys, which are destroyed later and never removed. Their marks must be released. Otherwise a later
// object of the same name would become the owner of the deleted external object.
type Lasting interface {
	// Lasts is never called. An adapter that has it is Lasting.
	Lasts()
}

// Follower is implemented by adapters whose external objects have parts that the change feed reports under another kind
// and other ids. Without Follower, a change of a part would enqueue every object of the key server.
type Follower[T Object] interface {
	// Follows returns the parts of the object's external object.
	Follows(obj T) []Followed
}

// Followed is a part of an external object as the change feed names it.
type Followed struct {
	Feed string // the kind in the change feed, one of Kind.Follows
	ID   string // 16 hexadecimal digits
}

// SupersededClaim is a replaced external object and the claim on it.
type SupersededClaim struct {
	Superseded
	Claim string
}

// Kind describes a kind of object.
type Kind struct {
	Name string // as in v1beta1.Kinds: "TrustedCA"
	Feed string // the kind in the change feed
	// FormatID formats an id of the change feed like the ids in the status.
	FormatID func(schema.HexID) string
	// ParseID is the inverse of FormatID.
	ParseID func(string) (schema.HexID, error)
	// Awaits are kinds in the change feed. A change of such a kind enqueues objects that are not Ready. A change of a kind
	// in Uses enqueues all objects.
	Awaits []string
	Uses   []string
	// Follows are kinds in the change feed that report parts of this kind's external objects (Follower).
	Follows []string
}

// Input has the data and clients for an adapter's methods.
type Input struct {
	Conn      *connection.Connection
	Sources   *sources.Reader
	Cluster   client.Reader // reads from the cache
	Peers     Peering
	Issuer    *sources.Issuer
	Now       time.Time
	NotBefore time.Time
	Deleting  bool
	// Superseded are the external objects that a rotation has replaced but not removed yet.
	Superseded []Superseded

	marked func(context.Context) (string, bool, error)
}

// Marked returns the id of the external object with this object's owner mark. It finds external objects without a name
// if their id was never recorded, or only in a lost cluster. If the key server does not support owner marks, the error
// states this (connection.IsUnsupported).
func (in Input) Marked(ctx context.Context) (id string, marked bool, err error) {
	return in.marked(ctx)
}

// Outcome is the result of a verified write, according to the re-read.
type Outcome struct {
	ID       string
	Evidence string
	// Unfinished is the error that interrupted a creation in several writes. The external object exists with the id ID,
	// and its missing parts are drift.
	Unfinished error
	// AdapterData replaces External.AdapterData after the write, if it is not nil.
	AdapterData any
}
