package deletion

import (
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// RefuseDeletion returns an error if the principal must not be deleted, for example if it is the caller or a group of
// the caller: the deletion would change the caller's own rights.
func RefuseDeletion(caller, p keyserver.Principal) error {
	if err := p.RefuseChange(); err != nil {
		return err
	}
	if isOrHas(p, caller) {
		return fault.New(fault.OwnAccount, "principal %q is your own or one of your groups; ask another administrator", p.Name).
			Audited(fault.ReasonInvalidArgument)
	}
	return nil
}

// RefuseNewOwner returns an error if the new owner cannot receive the principal's keys. The new owner may not be the
// caller or a group of the caller, because the deletion would then benefit the caller.
func RefuseNewOwner(caller, heir keyserver.Principal, of keyserver.ID) error {
	switch {
	case heir.ID == of:
		return fault.New(fault.InvalidArgument, "heir: must not be the principal that is deleted").Audited(fault.ReasonInvalidArgument)
	case heir.Flags.Disabled(), heir.Flags.SystemDefined():
		return fault.New(fault.InvalidArgument, "heir: %q is disabled or system-defined; name an enabled principal", heir.Name).
			Audited(fault.ReasonInvalidArgument)
	case isOrHas(heir, caller):
		return fault.New(fault.OwnAccount, "heir: must not be yourself or one of your groups; name another principal, or ask another administrator").
			Audited(fault.ReasonInvalidArgument)
	default:
		return nil
	}
}

// isOrHas reports whether p is the caller or a group of the caller.
func isOrHas(p, caller keyserver.Principal) bool {
	return p.ID == caller.ID || slices.Contains(caller.Groups, p.ID)
}
