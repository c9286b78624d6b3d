package reconcile

import (
	"fmt"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
)

// Hindrance is something that an adapter has found in the way of an external
// object. It decides what the object says; what the machinery would do about the
// external object otherwise is not done.
type Hindrance struct {
	// Rule names it, for logs; where it has no name, the rule that heeds it does.
	Rule    string
	When    When
	Reason  v1alpha1.Reason
	Message string
}

// When says what a hindrance keeps from being done. None keeps an object that
// observes from saying what it sees.
type When int

// The occasions.
const (
	// Always: it is neither made, nor taken over, nor corrected.
	Always When = iota
	// Absent: it is not made. What is there already needs nothing for it.
	Absent
	// Present: it is neither taken over nor corrected, where it is there.
	Present
	// Agreed: nothing is kept from being done about it. Where it is as declared, that
	// is not all that there is to say.
	Agreed
	// Removed: it is not deleted before the status has said the message, which
	// goes on after "removing ...: ".
	Removed
)

// BuiltIn hinders the management of what the key server defines for itself.
func BuiltIn(what string) Hindrance {
	return Hindrance{
		Rule: "readOnly", When: Present, Reason: v1alpha1.ReasonConflict,
		Message: fmt.Sprintf("%s is built in and read-only; set managementPolicy to Observe, or declare one of your own under another name", what),
	}
}

// Uncreatable hinders the making of what cannot be made, only found.
func Uncreatable(why string) Hindrance {
	return Hindrance{Rule: "uncreatable", When: Absent, Reason: v1alpha1.ReasonInvalidSpec, Message: why}
}

// Fixed keeps what cannot be corrected, or made, from being tried again and
// again, and from being replaced at a price that nobody has agreed to.
func Fixed(why string) Hindrance {
	return Hindrance{Rule: "fixed", When: Always, Reason: v1alpha1.ReasonConflict, Message: why}
}

// Dependency hinders what would be refused until something else is there:
// Absent for the making of what is not there, Always where its correction is as
// good as making it.
func Dependency(when When, why string) Hindrance {
	return Hindrance{Rule: "dependency", When: when, Reason: v1alpha1.ReasonDependencyNotReady, Message: why}
}

// Consequence has what a deletion takes with it said before it does.
func Consequence(says string) Hindrance {
	return Hindrance{When: Removed, Reason: v1alpha1.ReasonProgressing, Message: says}
}

// hindrance returns the first that counts at one of the occasions.
func (e External) hindrance(occasions ...When) (Hindrance, bool) {
	for _, h := range e.Hindrances {
		if slices.Contains(occasions, h.When) {
			return h, true
		}
	}
	return Hindrance{}, false
}
