package verified

import (
	"context"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// settableFlags are the flags that callers may change.
const settableFlags = keyserver.FlagEnable | keyserver.FlagDelegation

// FlagsResult is the result of changing a principal's flags.
type FlagsResult struct {
	Asked  keyserver.FlagChange
	Saved  bool
	Before keyserver.Flags
	After  keyserver.Flags // as read back
	Detail string
}

// RolesResult is the result of replacing a principal's roles.
type RolesResult struct {
	Requested keyserver.PrincipalRoles
	Saved     bool
	Principal keyserver.Principal // as read back
	Detail    string
}

// UpdatePrincipalFlags changes the given flags of a principal and verifies the change.
func (s *Service) UpdatePrincipalFlags(ctx context.Context, by keyserver.Caller, change keyserver.FlagChange) (FlagsResult, error) {
	if err := requireID("id", change.ID); err != nil {
		return FlagsResult{}, err
	}
	if change.Mask == 0 || change.Mask&^settableFlags != 0 {
		return FlagsResult{}, fault.New(fault.BadRequest, "delegation: is missing, and so is disabled; send at least one of them")
	}
	return verifiedWrite[keyserver.Principal, FlagsResult]{
		read: func(ctx context.Context) (keyserver.Principal, error) { return s.ks.Principal(ctx, by, change.ID) },
		refuse: func(before keyserver.Principal) error {
			if err := refuseUpdate(by, before); err != nil {
				return err
			}
			if !before.Type.CarriesFlags() {
				return fault.New(fault.NoFlagWord, "a %s principal has no flag word; remove its roles or its members instead", before.Type)
			}
			return nil
		},
		write: func(ctx context.Context, _ keyserver.Principal) error {
			return s.ks.UpdatePrincipalFlags(ctx, by, change)
		},
		verdict: func(before, after keyserver.Principal) (FlagsResult, error) {
			return judgeFlags(change, before.Flags, after.Flags)
		},
		unread: fault.ReadbackFailed,
	}.do(ctx)
}

// judgeFlags returns the verdict on a change of flags. If another caller has changed other settable flags at the same
// time, the detail states this. A change of any other flag is an error: the key server may have replaced all flags.
func judgeFlags(change keyserver.FlagChange, before, after keyserver.Flags) (FlagsResult, error) {
	r := FlagsResult{Asked: change, Before: before, After: after}
	wrong := after ^ change.Apply(before)
	switch {
	case wrong&change.Mask != 0:
		r.Detail = fmt.Sprintf("the key server accepted the change, but a fresh read shows the flag word %#08x", uint32(after))
	case wrong&^settableFlags != 0:
		r.Detail = fmt.Sprintf("the read-only flag bits %#x changed too; compare before and after", uint32(wrong&^settableFlags))
	case wrong != 0:
		r.Saved, r.Detail = true, "a fresh read shows the named flags as sent; another flag changed at the same time: "+flagNow(wrong, after)
		return r, nil
	default:
		r.Saved, r.Detail = true, "a fresh read shows the named flags as sent, and no other bit changed"
		return r, nil
	}
	return r, fault.New(fault.NotSaved, "%s", r.Detail)
}

// flagNow describes the current value of a settable flag.
func flagNow(flag, word keyserver.Flags) string {
	if flag == keyserver.FlagDelegation {
		return fmt.Sprintf("delegation is %t now", word.Delegation())
	}
	return fmt.Sprintf("disabled is %t now", word.Disabled())
}

// SetPrincipalRoles replaces the roles of a principal and verifies that.
func (s *Service) SetPrincipalRoles(ctx context.Context, by keyserver.Caller, set keyserver.PrincipalRoles) (RolesResult, error) {
	if err := requireID("id", set.ID); err != nil {
		return RolesResult{}, err
	}
	set.Roles = keyserver.NormalizeIDs(set.Roles)
	return verifiedWrite[keyserver.Principal, RolesResult]{
		read:   func(ctx context.Context) (keyserver.Principal, error) { return s.ks.Principal(ctx, by, set.ID) },
		refuse: func(before keyserver.Principal) error { return refuseUpdate(by, before) },
		write: func(ctx context.Context, _ keyserver.Principal) error {
			return s.ks.SetPrincipalRoles(ctx, by, set)
		},
		verdict: func(_, after keyserver.Principal) (RolesResult, error) {
			r := RolesResult{Requested: set, Principal: after}
			if !sameIDs(after.Roles, set.Roles) {
				r.Detail = fmt.Sprintf("a fresh read shows %d roles, which differ from the %d sent", len(after.Roles), len(set.Roles))
				return r, fault.New(fault.NotSaved, "%s", r.Detail)
			}
			r.Saved, r.Detail = true, "a fresh read shows the roles as sent; they apply from the next request on"
			return r, nil
		},
		unread: fault.ReadbackFailed,
	}.do(ctx)
}
