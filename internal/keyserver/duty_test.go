package keyserver

import (
	"slices"
	"testing"
)

// The built-in roles of a split deployment are no conflict by themselves, with
// any role that uses keys, and with none of another duty.
func TestConflicts(t *testing.T) {
	duties := map[ID]bool{RoleAdministrator: true, RoleSecurityOfficer: true, RoleAuditor: true}
	for _, a := range BuiltInRoles(Split) {
		for _, b := range BuiltInRoles(Split) {
			all := slices.Concat(a.Role().Operations, b.Role().Operations)
			_, got := ConflictOf(nil, all)
			if want := a.ID != b.ID && duties[a.ID] && duties[b.ID]; got != want {
				t.Errorf("%s and %s: conflict is %v", a.Name, b.Name, got)
			}
			if c, got := ConflictOf(all, all); got {
				t.Errorf("%s and %s: %v was held before", a.Name, b.Name, c)
			}
		}
	}
	c, ok := ConflictOf([]ID{OpReadAudit.ID}, []ID{OpCreateRole.ID, OpReadAudit.ID, OpHMAC.ID})
	if !ok || c.One.ID != OpCreateRole.ID || c.Other.ID != OpReadAudit.ID {
		t.Errorf("got %v, %v", c, ok)
	}
}
