package keyserver

import (
	"context"
	"slices"
	"time"
	"unicode/utf8"
)

// MaxOwner is the maximum length of an owner's name, in characters.
const MaxOwner = 256

// OwnedKinds are the kinds of objects that can have an owner mark: those that a manifest
// can declare.
var OwnedKinds = []ChangeKind{
	ChangeRole, ChangePrincipal, ChangeKey, ChangeTrustedCA, ChangeTrustedServer, ChangePrincipalTrust, ChangeACLTemplate, ChangeTemplatedDirectory,
}

// Object names an object as in the change feed.
type Object struct {
	Kind ChangeKind
	ID   ID
}

// String returns "kind id", for messages and audit rows.
func (o Object) String() string { return string(o.Kind) + " " + o.ID.Hex() }

// Owned reports whether objects of the kind can have an owner mark.
func (o Object) Owned() bool { return slices.Contains(OwnedKinds, o.Kind) }

// OwnerMark records which manager manages an object. It grants and forbids nothing;
// managers read it before they change the object.
type OwnerMark struct {
	Object Object
	Owner  string
	Since  time.Time // to the microsecond
}

// OwnerFilter selects marks of one kind.
type OwnerFilter struct {
	Kind  ChangeKind
	ID    *ID // only the mark of this object
	After ID  // only marks after this id
	Limit int
}

// OwnerChange marks an object.
type OwnerChange struct {
	Object Object
	Owner  string
	// Expect is the present owner; empty if there must be none.
	Expect string
}

// Allows reports whether the change may replace the mark of holder (empty for no mark).
// An owner may always set its own mark again.
func (c OwnerChange) Allows(holder string) bool { return holder == c.Expect || holder == c.Owner }

// OwnerRelease is a request to delete a mark.
type OwnerRelease struct {
	Object Object
	Expect string // the present owner
}

// Owner returns the kind under which the change feed reports owner marks of objects of kind k. It differs from k so
// that readers of object changes can ignore marks.
func (k ChangeKind) Owner() ChangeKind { return k + "Owner" }

type markKey struct{}

// WithOwnerMark returns a context that adds a mark to each object of a kind that is created
// under it, in the same transaction. m.Object has only the kind.
func WithOwnerMark(ctx context.Context, m OwnerMark) context.Context {
	return context.WithValue(ctx, markKey{}, m)
}

// MarkOf returns the mark that WithOwnerMark stored in the context.
func MarkOf(ctx context.Context) (m OwnerMark, marked bool) {
	m, marked = ctx.Value(markKey{}).(OwnerMark)
	return m, marked
}

// ValidOwner reports whether a text is a valid owner name.
func ValidOwner(name string) bool {
	return name != "" && utf8.RuneCountInString(name) <= MaxOwner && Printable(name)
}
