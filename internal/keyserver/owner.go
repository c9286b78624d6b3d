package keyserver

import (
	"context"
	"slices"
	"time"
	"unicode/utf8"
)

// MaxOwner is the longest name of an owner, in characters.
const MaxOwner = 256

// OwnedKinds are the kinds of objects that can have an owner mark: what somebody
// declares elsewhere, and this key server keeps.
var OwnedKinds = []ChangeKind{
	ChangeRole, ChangePrincipal, ChangeKey, ChangeTrustedCA, ChangeTrustedServer, ChangePrincipalTrust, ChangeACLTemplate, ChangeTemplatedDirectory,
}

// Object names an object as the change feed does.
type Object struct {
	Kind ChangeKind
	ID   ID
}

// String is "kind id", for messages and audit rows.
func (o Object) String() string { return string(o.Kind) + " " + o.ID.Hex() }

// Owned reports whether objects of the kind can have an owner mark.
func (o Object) Owned() bool { return slices.Contains(OwnedKinds, o.Kind) }

// OwnerMark says who manages an object. It grants nothing and forbids nothing:
// whoever changes objects asks for it first.
type OwnerMark struct {
	Object Object
	Owner  string
	Since  time.Time // to the microsecond
}

// OwnerFilter selects marks of one kind.
type OwnerFilter struct {
	Kind  ChangeKind
	ID    *ID // the one of this object
	After ID  // those behind this id
	Limit int
}

// OwnerChange marks an object.
type OwnerChange struct {
	Object Object
	Owner  string
	// Expect is who holds it now; empty where nobody is to.
	Expect string
}

// Allows reports whether the mark may become the new owner's while somebody
// holds it, or nobody (empty). What is his already stays his.
func (c OwnerChange) Allows(holder string) bool { return holder == c.Expect || holder == c.Owner }

// OwnerRelease takes a mark away.
type OwnerRelease struct {
	Object Object
	Expect string // who holds it
}

// Owner is the kind of the changes of a kind's owner marks: what follows the objects
// need not follow their marks.
func (k ChangeKind) Owner() ChangeKind { return k + "Owner" }

type markKey struct{}

// Marking has objects of a kind that are made under the context made with a mark, in
// the same transaction. The mark's object is the kind alone.
func Marking(ctx context.Context, m OwnerMark) context.Context {
	return context.WithValue(ctx, markKey{}, m)
}

// MarkOf is what the context says of marks.
func MarkOf(ctx context.Context) (m OwnerMark, marked bool) {
	m, marked = ctx.Value(markKey{}).(OwnerMark)
	return m, marked
}

// ValidOwner reports whether a text can name an owner.
func ValidOwner(name string) bool {
	return name != "" && utf8.RuneCountInString(name) <= MaxOwner && Printable(name)
}
