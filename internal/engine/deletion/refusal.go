package deletion

import (
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// RefuseToGo refuses to delete who has to stay. That his own group goes would
// change what the caller holds himself.
func RefuseToGo(caller, p keyserver.Principal) error {
	switch {
	case p.Flags.SystemDefined():
		return fault.New(fault.BuiltInPrincipal, "principal %s is system defined", p.Name).Audited(fault.ReasonBuiltIn)
	case isOrHas(p, caller):
		return fault.New(fault.OwnAccount, "principal %q is your own, or a group of yours; ask another administrator", p.Name).
			Audited(fault.ReasonInvalidArgument)
	default:
		return nil
	}
}

// RefuseHeir refuses who cannot receive what a principal owns, and the caller: it
// is not done in one's own favour.
func RefuseHeir(caller, heir keyserver.Principal, of keyserver.ID) error {
	switch {
	case heir.ID == of:
		return fault.New(fault.InvalidArgument, "heir is the principal that is to be deleted").Audited(fault.ReasonInvalidArgument)
	case heir.Flags.Disabled(), heir.Flags.SystemDefined():
		return fault.New(fault.InvalidArgument, "heir %q is disabled or system defined; name somebody who can use what he receives", heir.Name).
			Audited(fault.ReasonInvalidArgument)
	case isOrHas(heir, caller):
		return fault.New(fault.OwnAccount, "heir is yourself, or a group of yours; name another, or have another administrator do it").
			Audited(fault.ReasonInvalidArgument)
	default:
		return nil
	}
}

// isOrHas reports whether a principal is the caller, or a group that he is in.
func isOrHas(p, caller keyserver.Principal) bool {
	return p.ID == caller.ID || slices.Contains(caller.Groups, p.ID)
}
