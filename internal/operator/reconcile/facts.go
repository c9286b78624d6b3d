package reconcile

import (
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/brief"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/grants"
)

// Facts has everything that a decision depends on. The rules use nothing else, not even the clock.
type Facts struct {
	Now time.Time

	// The policies of the object.
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

	// The external object that its status records.
	Owned      string // external id
	Provenance v1alpha1.Provenance
	// Attempted: a creation of exactly this declaration was
	// started, and its outcome was never recorded.
	Attempted bool
	// Superseded are external objects that a rotation has replaced.
	Superseded []Superseded

	// Problem is the reason why the remaining facts could not be gathered.
	Problem *connection.Problem

	// External is the external object on the key server.
	External External
	// NeedsOnlyAdditions: the external object only needs additions, as after an interrupted creation.
	NeedsOnlyAdditions bool

	// Ownership says who owns the external object.
	Ownership

	// ConflictingOwner is an older object with the same claim. NewOwner is an object that still claims the external
	// object after this object is deleted.
	ConflictingOwner string
	NewOwner         string

	// Failures is the number of writes in a row that failed. The next write is due at RetryAt.
	Failures int
	RetryAt  time.Time

	// ReadyMessage is the message of the Ready condition.
	ReadyMessage string
}

// External is one object on the key server as last read.
type External struct {
	What   string // for people: `CA "CN=..." (certificateId ...)`
	Exists bool
	ID     string
	// Names are the names that the key server uses for it, if they can
	// differ from the declared ones. A grant must cover them, too.
	Names []grants.Name
	Drift []v1alpha1.FieldDrift
	// Evidence says how the reading was matched with the declaration.
	Evidence string
	// IntendedChange describes an intended change that happened after the status was written. The change is no drift,
	// but the message of the status is out of date.
	IntendedChange string
	// Renewed: the declaration has changed since the status was
	// written, so a difference is not an outside change.
	Renewed bool
	// Replaces is the claim on the external object that is owned now, if the declaration now means another one.
	Replaces string
	// Blockers block actions on the external object, the most important first.
	Blockers []Blocker
	// AdapterData has data of the reading that the adapter needs later. Only the adapter uses it.
	AdapterData any
}

// Superseded is an external object that a rotation has replaced.
type Superseded struct {
	ID          string
	Provenance  v1alpha1.Provenance
	RemoveAfter time.Time
	ClaimedBy   string // another object that declares it
}

// removable reports whether the deletion policy allows the
// deletion of an external object with that provenance.
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

// ours reports whether the external object belongs to this object.
func (f Facts) ours() bool {
	return f.External.ID == f.Owned || f.resumes() || f.ownedBySelf()
}

// resumes reports whether an earlier attempt created the external object, completely or in part.
func (f Facts) resumes() bool {
	return f.Attempted && (len(f.External.Drift) == 0 || f.NeedsOnlyAdditions)
}

// ownsNothing reports whether the existing external object does not belong
// to this object, and the object owns nothing else on the key server.
func (f Facts) ownsNothing() bool {
	return f.Problem == nil && !f.Deleting && f.External.Exists && !f.ours() && f.Owned == "" && !f.Attempted && len(f.Superseded) == 0
}

// provenanceAfter returns the provenance of the external object after an action.
func (f Facts) provenanceAfter(a Action) v1alpha1.Provenance {
	switch {
	case a == actCreate:
		return v1alpha1.Created
	case f.External.ID == f.Owned:
		return f.Provenance
	case f.resumes():
		return v1alpha1.Created
	case f.ownedBySelf():
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

// FieldsOf lists the names of the differing fields, for messages.
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
