package reconcile

import (
	"fmt"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
)

// Blocker is a reason to block actions on an external object, found by an adapter.
// The status reports it, and the reconciler does not do what it would do otherwise.
type Blocker struct {
	// Rule names the blocker in logs. If Rule is empty, logs name the rule that applied the blocker.
	Rule    string
	When    When
	Reason  v1alpha1.Reason
	Message string
}

// When says which actions a blocker blocks. An object that only observes still reports its external object.
type When int

// The occasions.
const (
	// Always: the external object is not created, adopted or corrected.
	Always When = iota
	// Absent: the external object is not created. An existing one is not affected.
	Absent
	// Present: an existing one is not adopted or corrected.
	Present
	// Agreed: no action is blocked. If the external object is as
	// declared, the status reports this reason instead of Verified.
	Agreed
	// Removed: the external object is not deleted before the status has reported the message, after the words "removing
	// ...: ".
	Removed
)

// BuiltIn blocks the management of objects that the key server defines itself.
func BuiltIn(what string) Blocker {
	return Blocker{
		Rule: "readOnly", When: Present, Reason: v1alpha1.ReasonConflict,
		Message: fmt.Sprintf("%s is built in and read-only; set managementPolicy to Observe, or declare another name", what),
	}
}

// Uncreatable blocks the creation of an object that cannot be created, only found.
func Uncreatable(why string) Blocker {
	return Blocker{Rule: "uncreatable", When: Absent, Reason: v1alpha1.ReasonInvalidSpec, Message: why}
}

// Fixed blocks repeated attempts to correct or create an object that cannot be corrected or created. It also blocks a
// replacement if no user has accepted the consequences.
func Fixed(why string) Blocker {
	return Blocker{Rule: "fixed", When: Always, Reason: v1alpha1.ReasonConflict, Message: why}
}

// Dependency blocks writes that the key server would reject until something else exists. when is Absent to block only
// the creation. It is Always if a correction needs the same other object.
func Dependency(when When, why string) Blocker {
	return Blocker{Rule: "dependency", When: when, Reason: v1alpha1.ReasonDependencyNotReady, Message: why}
}

// Consequence makes the status report, before a deletion, what else it removes.
func Consequence(says string) Blocker {
	return Blocker{When: Removed, Reason: v1alpha1.ReasonProgressing, Message: says}
}

// blocker returns the first blocker for one of the occasions.
func (e External) blocker(occasions ...When) (Blocker, bool) {
	for _, h := range e.Blockers {
		if slices.Contains(occasions, h.When) {
			return h, true
		}
	}
	return Blocker{}, false
}
