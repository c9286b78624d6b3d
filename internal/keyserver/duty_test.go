package keyserver

import (
	"slices"
	"testing"
)

// A built-in role of a split deployment has no conflict alone or with a role for key use.
// It conflicts with each role of another duty.
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

// The holder of a built-in role has exactly its duty, and roles for key use have none.
// Operations that come with key use give no duty.
func TestWhoHasADuty(t *testing.T) {
	held := map[ID]Duty{RoleAdministrator: Administration, RoleSecurityOfficer: Trust, RoleAuditor: Auditing}
	for _, role := range BuiltInRoles(Split) {
		for _, d := range ApprovingDuties {
			want := held[role.ID] == d || d == AnyDuty && held[role.ID] != ""
			if got := HoldsDuty(role.Role().Operations, d); got != want {
				t.Errorf("%s has %s: %v", role.Name, d, got)
			}
		}
		gives := slices.ContainsFunc(role.Operations, Operation.GivesDuty)
		if want := held[role.ID] != ""; gives != want {
			t.Errorf("%s gives a duty: %v", role.Name, gives)
		}
	}
	all := BuiltInRoles(Unified)[0].Role().Operations
	for d, want := range map[Duty]bool{Administration: true, Trust: true, Auditing: false, AnyDuty: true, KeyUse: false} {
		if got := HoldsDuty(all, d); got != want {
			t.Errorf("who holds everything has %s: %v", d, got)
		}
	}
}
