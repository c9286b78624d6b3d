package reconcile

import (
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/grants"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/brief"
)

// Facts are everything that a decision rests on. Nothing else is consulted,
// not even the clock.
type Facts struct {
	Now time.Time

	// What the object asks for.
	Management v1alpha1.ManagementPolicy
	Adoption   v1alpha1.AdoptionPolicy
	Deletion   v1alpha1.DeletionPolicy
	Resync     time.Duration
	Paused     bool

	// Its deletion.
	Deleting    bool
	Abandoned   bool     // by annotation
	KindRemoved bool     // the custom resource definition itself is being deleted
	Dependants  []string // objects that need this one

	// What it owns according to its status.
	Owned      string // external id
	Provenance v1alpha1.Provenance
	// Attempted: a creation of exactly what is declared was begun and its
	// outcome was never recorded.
	Attempted bool
	// Superseded are external objects that a rotation has replaced.
	Superseded []Superseded

	// Obstacle is what kept the rest from being gathered.
	Obstacle *connection.Problem

	// External is what the key server holds.
	External External
	// Begun: nothing of it has to be changed or taken away, only added, as a
	// creation leaves it that was cut short.
	Begun bool

	// Ownership is whose that is.
	Ownership

	// Rival is the older object that claims the same; Heir is one that goes
	// on claiming it when this one is deleted.
	Rival string
	Heir  string

	// Failures is how many writes in a row have failed, RetryAt when the next is due.
	Failures int
	RetryAt  time.Time

	// Said is the message of the Ready condition.
	Said string
}

// External is one object on the key server as last read.
type External struct {
	What   string // for people: `CA "CN=..." (certificateId ...)`
	Exists bool
	ID     string
	// Names are what the key server calls it, where that need not be what is
	// declared. A grant has to cover them, too.
	Names []grants.Name
	Drift []v1alpha1.FieldDrift
	// Evidence says how the reading was matched with the declaration.
	Evidence string
	// News is what has come about since the status was written, as it was meant to: no
	// drift, and yet what the message says is out of date.
	News string
	// Renewed: the declaration has changed since the status was written, so
	// that a difference is not the doing of somebody outside.
	Renewed bool
	// Replaces is the claim on the object that is owned now, where the
	// declaration has moved on to another one.
	Replaces string
	// Hindrances are what stands in the way of it, the most important first.
	Hindrances []Hindrance
	// Noted is what the adapter has to know later of what it has read. Nobody
	// else looks at it.
	Noted any
}

// Superseded is an external object that a rotation has replaced.
type Superseded struct {
	ID          string
	Provenance  v1alpha1.Provenance
	RemoveAfter time.Time
	ClaimedBy   string // another object that declares it
}

// removable reports whether the deletion policy lets go of something of that
// provenance.
func (f Facts) removable(p v1alpha1.Provenance) bool {
	switch f.Deletion {
	case v1alpha1.DeleteIfCreated:
		return p == v1alpha1.Created
	case v1alpha1.DeleteExternal:
		return p != ""
	default:
		return false
	}
}

// ours reports whether the external object belongs to this one.
func (f Facts) ours() bool {
	return f.External.ID == f.Owned || f.resumes() || f.mine()
}

// resumes reports whether the external object is what an attempt at a creation
// has made, all of it or its beginning.
func (f Facts) resumes() bool {
	return f.Attempted && (len(f.External.Drift) == 0 || f.Begun)
}

// ownsNothing reports whether what exists does not belong to the object, and the object has
// nothing else on the key server.
func (f Facts) ownsNothing() bool {
	return f.Obstacle == nil && !f.Deleting && f.External.Exists && !f.ours() && f.Owned == "" && !f.Attempted && len(f.Superseded) == 0
}

// comes is how the external object comes to this one by an action.
func (f Facts) comes(a Action) v1alpha1.Provenance {
	switch {
	case a == actCreate:
		return v1alpha1.Created
	case f.External.ID == f.Owned:
		return f.Provenance
	case f.resumes():
		return v1alpha1.Created
	case f.mine():
		return f.provenance()
	}
	for _, s := range f.Superseded {
		if s.ID == f.External.ID {
			return s.Provenance
		}
	}
	return v1alpha1.Adopted
}

func (f Facts) supersedes(id string) bool {
	for _, s := range f.Superseded {
		if s.ID == id {
			return true
		}
	}
	return false
}

func (f Facts) fields() string { return FieldsOf(f.External.Drift) }

// FieldsOf names the fields that differ, for people.
func FieldsOf(drift []v1alpha1.FieldDrift) string {
	names := make([]string, len(drift))
	for i, d := range drift {
		names[i] = d.Field
	}
	if len(names) > 2 {
		return brief.List(names)
	}
	return strings.Join(names, " and ")
}
