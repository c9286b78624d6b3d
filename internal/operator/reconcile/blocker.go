package reconcile

import (
	"fmt"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

// Blocker is a reason of an adapter not to act on an external object. The reconciler then does not act, and reports the
// reason in the status.
type Blocker struct {
	// Rule names the blocker in logs. If Rule is empty, logs name the rule that applied the blocker.
	Rule    string
	When    When
	Reason  v1beta1.Reason
	Message string
}

// When says which actions a blocker blocks. An object with managementPolicy Observe is not affected.
type When int

// The values of When.
const (
	// Always blocks creation, adoption and correction.
	Always When = iota
	// Absent blocks only the creation of an external object.
	Absent
	// Present blocks only the adoption and correction of an existing external object.
	Present
	// Agreed blocks no action. If the external object is as declared, the status has this reason instead of Verified.
	Agreed
	// Removed delays the deletion until the status has the message, after the words "removing ...: ".
	Removed
)

// BuiltIn blocks the management of objects that the key server defines itself.
func BuiltIn(what string) Blocker {
	return Blocker{
		Rule: "readOnly", When: Present, Reason: v1beta1.ReasonConflict,
		Message: fmt.Sprintf("%s is built in and read-only; set managementPolicy to Observe, or declare another name", what),
	}
}

// Uncreatable blocks the creation. The external object can only be found.
func Uncreatable(why string) Blocker {
	return Blocker{Rule: "uncreatable", When: Absent, Reason: v1beta1.ReasonInvalidSpec, Message: why}
}

// Fixed blocks creation, adoption and correction, because the key server does not allow them. It also blocks a
// replacement until a user accepts its consequences.
func Fixed(why string) Blocker {
	return Blocker{Rule: "fixed", When: Always, Reason: v1beta1.ReasonConflict, Message: why}
}

// Dependency blocks writes that the key server would reject until another object exists there. when is Absent if only
// the creation needs that object, and Always if a correction needs it, too.
func Dependency(when When, why string) Blocker {
	return Blocker{Rule: "dependency", When: when, Reason: v1beta1.ReasonDependencyNotReady, Message: why}
}

// Consequence makes the status report what else a deletion removes, before the deletion.
func Consequence(says string) Blocker {
	return Blocker{When: Removed, Reason: v1beta1.ReasonProgressing, Message: says}
}

// blocker returns the first blocker with one of the given values of When.
func (e External) blocker(occasions ...When) (Blocker, bool) {
	for _, h := range e.Blockers {
		if slices.Contains(occasions, h.When) {
			return h, true
		}
	}
	return Blocker{}, false
}
