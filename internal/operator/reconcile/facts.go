package reconcile

import (
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/brief"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/grants"
)

// Facts has all data on which a decision depends, including the time. The rules read nothing else.
type Facts struct {
	Now time.Time

	// The policies of the object.
	Management v1beta1.ManagementPolicy
	Adoption   v1beta1.AdoptionPolicy
	Deletion   v1beta1.DeletionPolicy
	Resync     time.Duration
	Paused     bool

	// The deletion of the object.
	Deleting    bool
	Abandoned   bool     // by annotation
	KindRemoved bool     // the custom resource definition itself is being deleted
	Dependants  []string // objects that need this one

	// The external object in the object's status.
	Owned      string // external id
	Provenance v1beta1.Provenance
	// Attempted means that a creation of exactly this declaration was started and its outcome was not recorded.
	Attempted bool
	// Superseded are external objects that a rotation has replaced.
	Superseded []Superseded

	// Problem is why the facts below are incomplete.
	Problem *connection.Problem

	// External is the external object on the key server.
	External External
	// NeedsOnlyAdditions means that the external object only lacks parts, as after an interrupted creation.
	NeedsOnlyAdditions bool

	// Ownership says who owns the external object.
	Ownership

	// ConflictingOwner is an older object with the same claim. NewOwner is an object that takes over the external object
	// when this object is deleted.
	ConflictingOwner string
	NewOwner         string

	// Failures is the number of failed writes in a row. The next write is not sent before RetryAt.
	Failures int
	RetryAt  time.Time

	// ReadyMessage is the message of the Ready condition.
	ReadyMessage string
}

// External is one object on the key server, according to the last reading.
type External struct {
	What   string // for messages: `CA "CN=..." (certificateId ...)`
	Exists bool
	ID     string
	// Names are names on the key server that may differ from the declared ones. A grant must cover them, too.
	Names []grants.Name
	Drift []v1beta1.FieldDrift
	// Evidence says how the reading agrees with the declaration.
	Evidence string
	// IntendedChange describes a change that the declaration allows and that the status does not show yet. It is no drift,
	// but the status message is outdated.
	IntendedChange string
	// Renewed means that the declaration has changed since the last status. A difference is then not an outside change.
	Renewed bool
	// Replaces is the claim on the presently owned external object, if the declaration now means another one.
	Replaces string
	// Blockers block actions on the external object, the most important first.
	Blockers []Blocker
	// AdapterData is data of the reading for later calls of the adapter. The reconciler does not use it.
	AdapterData any
}

// Superseded is an external object that a rotation has replaced.
type Superseded struct {
	ID          string
	Provenance  v1beta1.Provenance
	RemoveAfter time.Time
	ClaimedBy   string // name of another object that declares or owns it
}

// removable reports whether the deletion policy allows the
// deletion of an external object with that provenance.
func (f Facts) removable(p v1beta1.Provenance) bool {
	switch f.Deletion {
	case v1beta1.DeleteIfCreated:
		return p == v1beta1.Created
	case v1beta1.DeleteExternal:
		return p != ""
	default:
		return false
	}
}

// ours reports whether this object owns the external object that was found.
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
func (f Facts) provenanceAfter(a Action) v1beta1.Provenance {
	switch {
	case a == actCreate:
		return v1beta1.Created
	case f.External.ID == f.Owned:
		return f.Provenance
	case f.resumes():
		return v1beta1.Created
	case f.ownedBySelf():
		return f.provenance()
	}
	for _, s := range f.Superseded {
		if s.ID == f.External.ID {
			return s.Provenance
		}
	}
	return v1beta1.Adopted
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
func FieldsOf(drift []v1beta1.FieldDrift) string {
	names := make([]string, len(drift))
	for i, d := range drift {
		names[i] = d.Field
	}
	if len(names) > 2 {
		return brief.List(names)
	}
	return strings.Join(names, " and ")
}
