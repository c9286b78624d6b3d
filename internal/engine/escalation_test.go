package engine_test

import (
	"context"
	"crypto/rand"
	"slices"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// role stores a role with the given operations.
func role(t *testing.T, f *enginetest.Fixture, name string, operations ...keyserver.Operation) keyserver.ID {
	t.Helper()
	r := keyserver.Role{ID: enginetest.Must(values.NewID(rand.Reader))(t), Name: name, Operations: keyserver.NormalizeIDs(idsOf(operations))}
	ctx := context.Background()
	if err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error { return tx.InsertRole(ctx, r) }); err != nil {
		t.Fatal(err)
	}
	return r.ID
}

func idsOf(operations []keyserver.Operation) []keyserver.ID {
	ids := make([]keyserver.ID, len(operations))
	for i, op := range operations {
		ids[i] = op.ID
	}
	return ids
}

// managing has the operations for managing principals and roles.
var managing = []keyserver.Operation{
	keyserver.OpCreateRole, keyserver.OpUpdateRole, keyserver.OpCreatePrincipal, keyserver.OpUpdatePrincipalRoles,
	keyserver.OpUpdatePrincipalFlags, keyserver.OpChangeGroupMembers, keyserver.OpEnrollCertificate, keyserver.OpListRoles,
}

// TestNobodyGivesWhatHeDoesNotHold checks all kinds of changes: a caller can give an operation only if it has the
// operation. Each change is tried with an operation of each kind.
func TestNobodyGivesWhatHeDoesNotHold(t *testing.T) {
	ctx := context.Background()
	type world struct {
		f     *enginetest.Fixture
		clerk keyserver.Caller
		op    keyserver.Operation // to be given
		role  keyserver.ID        // with this operation
	}
	anybody := func(t *testing.T, w world) keyserver.ID {
		return w.f.Add(t, keyserver.PasswordPrincipal, t.Name(), nil, nil).Principal.ID
	}
	agent := func(t *testing.T, w world, name string) [][]byte {
		return [][]byte{enginetest.NewAgent(t, w.f.Prepared.CA, name, w.f.Clock.Now(), nil).Certificate.Raw}
	}
	ways := map[string]func(t *testing.T, w world) error{
		"CreateRole": func(_ *testing.T, w world) error {
			_, err := w.f.CreateRole(ctx, w.clerk, keyserver.NewRole{Name: "created", Operations: []keyserver.ID{w.op.ID}})
			return err
		},
		"UpdateRole": func(t *testing.T, w world) error {
			return w.f.UpdateRole(ctx, w.clerk, keyserver.RoleChange{ID: role(t, w.f, "updated"), Operations: []keyserver.ID{w.op.ID}})
		},
		"PasswordPrincipal": func(_ *testing.T, w world) error {
			_, err := w.f.CreatePasswordPrincipal(ctx, w.clerk, keyserver.NewPasswordPrincipal{Name: "p", Password: "a password", Roles: []keyserver.ID{w.role}})
			return err
		},
		"LDAPPrincipal": func(_ *testing.T, w world) error {
			_, err := w.f.CreatePrincipal(ctx, w.clerk, keyserver.NewPrincipal{Type: keyserver.LDAPPrincipal, Name: "l", Roles: []keyserver.ID{w.role}})
			return err
		},
		"Group": func(_ *testing.T, w world) error {
			_, err := w.f.CreatePrincipal(ctx, w.clerk, keyserver.NewPrincipal{Type: keyserver.GroupPrincipal, Name: "g", Roles: []keyserver.ID{w.role}})
			return err
		},
		"Roles": func(t *testing.T, w world) error {
			return w.f.SetPrincipalRoles(ctx, w.clerk, keyserver.PrincipalRoles{ID: anybody(t, w), Roles: []keyserver.ID{w.role}})
		},
		"Member": func(t *testing.T, w world) error {
			group := w.f.Add(t, keyserver.GroupPrincipal, "members", []keyserver.ID{w.role}, nil)
			return w.f.AddGroupMember(ctx, w.clerk, keyserver.Membership{Group: group.Principal.ID, Member: anybody(t, w)})
		},
		"Enrolment": func(t *testing.T, w world) error {
			_, err := w.f.EnrollCertificates(ctx, w.clerk, keyserver.Enrolment{Certificates: agent(t, w, "new"), Roles: []keyserver.ID{w.role}})
			return err
		},
		"EnrolmentOfAnother": func(t *testing.T, w world) error { // the holder of the certificate's key can log in as that principal
			w.f.Add(t, keyserver.CertificatePrincipal, "/CN=another", []keyserver.ID{w.role}, nil)
			_, err := w.f.EnrollCertificates(ctx, w.clerk, keyserver.Enrolment{Certificates: agent(t, w, "another")})
			return err
		},
	}
	cases := map[string]struct {
		reason string
		clerk  func(t *testing.T, f *enginetest.Fixture) keyserver.Caller
		op     keyserver.Operation
		given  bool
	}{
		"Held": {"what he holds he may give", func(t *testing.T, f *enginetest.Fixture) keyserver.Caller {
			return f.Add(t, keyserver.PasswordPrincipal, "clerk", []keyserver.ID{role(t, f, "managing", managing...)}, nil)
		}, keyserver.OpListRoles, true},
		"HeldByGroup": {"by a group as well", func(t *testing.T, f *enginetest.Fixture) keyserver.Caller {
			group := f.Add(t, keyserver.GroupPrincipal, "clerks", []keyserver.ID{role(t, f, "managing", managing...)}, nil).Principal.ID
			return f.Add(t, keyserver.PasswordPrincipal, "clerk", nil, []keyserver.ID{group})
		}, keyserver.OpListRoles, true},
		"NotHeld": {"and nothing else", func(t *testing.T, f *enginetest.Fixture) keyserver.Caller {
			return f.Add(t, keyserver.PasswordPrincipal, "clerk", []keyserver.ID{role(t, f, "managing", managing...)}, nil)
		}, keyserver.OpExportKey, false},
		"Any": {"but with an operation for that", func(_ *testing.T, f *enginetest.Fixture) keyserver.Caller { return f.Admin },
			keyserver.OpDelegateLogin, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
				w := world{f, c.clerk(t, f), c.op, role(t, f, "given", c.op)}
				for name, way := range ways {
					t.Run(name, func(t *testing.T) {
						err := way(t, w)
						if c.given && err != nil {
							t.Errorf("%s: %v", c.reason, err)
						}
						if !c.given {
							f.Refused(t, err, fault.Escalation, fault.ReasonEscalation)
						}
					})
				}
				if c.given {
					return
				}
				roles := enginetest.Must(f.Store.FindRoles(ctx, keyserver.RoleFilter{Name: "created"}))(t)
				for holder, held := range enginetest.Must(f.Store.AllHoldings(ctx))(t) {
					p := enginetest.Must(f.Store.Principal(ctx, holder))(t)
					if slices.Contains(held, w.role) && p.Name != "members" && p.Name != "/CN=another" || len(roles) > 0 {
						t.Errorf("%s was given something after all; roles made: %v", p.Name, roles)
					}
				}
			})
		})
	}
}

// TestTheDelegationFlagIsAGift checks that a caller can set the delegation flag only if it may give the use of keys:
// the flag gives that to delegates. Operations of other duties are not delegable.
func TestTheDelegationFlagIsAGift(t *testing.T) {
	ctx := context.Background()
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		clerk := f.Add(t, keyserver.PasswordPrincipal, "clerk", []keyserver.ID{role(t, f, "managing", append(managing, keyserver.OpHMAC)...)}, nil)
		for name, c := range map[string]struct {
			op keyserver.Operation
			ok bool
		}{"mac": {keyserver.OpHMAC, true}, "exporter": {keyserver.OpExportKey, false}, "officer": {keyserver.OpAddTrustedCA, true}} {
			boss := f.Add(t, keyserver.PasswordPrincipal, name, []keyserver.ID{role(t, f, name, c.op)}, nil).Principal.ID
			err := f.UpdatePrincipalFlags(ctx, clerk, keyserver.FlagChange{ID: boss, Mask: keyserver.FlagDelegation, Value: keyserver.FlagDelegation})
			switch {
			case c.ok && err != nil:
				t.Errorf("%s: %v", name, err)
			case !c.ok:
				f.Refused(t, err, fault.Escalation, fault.ReasonEscalation)
			}
		}
	})
}

// TestNobodyRaisesHimself checks that rights do not count for the check of the change that gives these rights.
func TestNobodyRaisesHimself(t *testing.T) {
	ctx := context.Background()
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		own := role(t, f, "own")
		clerk := f.Add(t, keyserver.PasswordPrincipal, "clerk", []keyserver.ID{own, role(t, f, "managing", managing...)}, nil)
		for _, op := range []keyserver.Operation{keyserver.OpExportKey, keyserver.OpGrantAny} {
			err := f.UpdateRole(ctx, clerk, keyserver.RoleChange{ID: own, Operations: []keyserver.ID{op.ID}})
			f.Refused(t, err, fault.Escalation, fault.ReasonEscalation)
		}
	})
}

// TestMembersGainKeys checks that a caller can add members to a group only if it may share the group's rights on keys.
func TestMembersGainKeys(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		clerks := f.Add(t, keyserver.GroupPrincipal, "clerks", nil, nil).Principal
		clerk := f.Add(t, keyserver.PasswordPrincipal, "clerk", []keyserver.ID{role(t, f, "members", keyserver.OpChangeGroupMembers)}, []keyserver.ID{clerks.ID})
		giver := f.Add(t, keyserver.PasswordPrincipal, "giver", []keyserver.ID{role(t, f, "any", keyserver.OpChangeGroupMembers, keyserver.OpGrantAny)}, nil)
		approved, other := clerk, clerk
		approved.Approved, other.Approved = []string{"changeGroupMembers"}, []string{"exportKey"}
		template := enginetest.Must(f.CreateACLTemplate(ctx, f.Admin, "template"))(t)
		for name, tc := range map[string]struct {
			by    keyserver.Caller
			given map[keyserver.PrincipalRef]keyserver.Rights // in addition to the group's rights
			group keyserver.Rights                            // 0: no entry
			write bool                                        // the group has WRITE on a template
			may   bool
		}{
			"nothing":             {by: clerk, may: true},
			"READ":                {by: clerk, group: keyserver.Read},
			"OWNER":               {by: clerk, group: keyserver.Owner, given: map[keyserver.PrincipalRef]keyserver.Rights{clerk.Principal: keyserver.Write}},
			"the same":            {by: clerk, group: keyserver.Read, given: map[keyserver.PrincipalRef]keyserver.Rights{clerk.Principal: keyserver.Read}, may: true},
			"by a group":          {by: clerk, group: keyserver.Owner, given: map[keyserver.PrincipalRef]keyserver.Rights{clerks: keyserver.Owner}, may: true},
			"demand":              {by: clerk, group: keyserver.MandatoryGroup},
			"template":            {by: clerk, write: true},
			"any operation":       {by: giver, group: keyserver.Owner, write: true, may: true},
			"approved":            {by: approved, group: keyserver.Owner, write: true, may: true},
			"approved for others": {by: other, group: keyserver.Owner},
		} {
			t.Run(name, func(t *testing.T) {
				group := f.Add(t, keyserver.GroupPrincipal, name, nil, nil).Principal
				member := f.Add(t, keyserver.PasswordPrincipal, "member of "+name, nil, nil).Principal
				// On the first key, the caller may share the group's rights.
				for _, rights := range []keyserver.Rights{0, tc.group} {
					link := f.Mint(t, f.Admin, nil)
					if rights == 0 {
						f.Grant(t, link, group, keyserver.Owner, keyserver.NoUsageLimit)
						f.Grant(t, link, clerks, keyserver.Owner, keyserver.NoUsageLimit)
						continue
					}
					f.Grant(t, link, group, rights, keyserver.NoUsageLimit)
					for p, rights := range tc.given {
						f.Grant(t, link, p, rights, keyserver.NoUsageLimit)
					}
				}
				if tc.write {
					if err := f.PutACLTemplateMember(ctx, f.Admin, keyserver.TemplateMembership{Template: template, Member: keyserver.TemplateMember{
						Principal: group, Rights: keyserver.Write, MaxUsage: keyserver.NoUsageLimit,
					}}); err != nil {
						t.Fatal(err)
					}
				}
				err := f.AddGroupMember(ctx, tc.by, keyserver.Membership{Group: group.ID, Member: member.ID})
				p := enginetest.Must(f.Store.Principal(ctx, member.ID))(t)
				if tc.may && (err != nil || len(p.Groups) != 1) {
					t.Errorf("in %d groups, %v", len(p.Groups), err)
				}
				if !tc.may {
					f.Refused(t, err, fault.Escalation, fault.ReasonEscalation)
					if len(p.Groups) > 0 {
						t.Error("it was added after all")
					}
				}
			})
		}
	})
}

// TestTakingIsNoGiving checks that a caller need not be permitted to give operations that it removes, or that the
// target already has.
func TestTakingIsNoGiving(t *testing.T) {
	ctx := context.Background()
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		clerk := f.Add(t, keyserver.PasswordPrincipal, "clerk", []keyserver.ID{role(t, f, "managing", managing...)}, nil)
		one, same := role(t, f, "one", keyserver.OpExportKey, keyserver.OpHMAC), role(t, f, "same", keyserver.OpExportKey)
		boss := f.Add(t, keyserver.PasswordPrincipal, "boss", []keyserver.ID{one}, nil).Principal.ID
		for _, roles := range [][]keyserver.ID{{one, same}, {same}, {}} {
			if err := f.SetPrincipalRoles(ctx, clerk, keyserver.PrincipalRoles{ID: boss, Roles: roles}); err != nil {
				t.Error(err)
			}
		}
		name := "renamed"
		if err := f.UpdateRole(ctx, clerk, keyserver.RoleChange{ID: one, Name: &name, Operations: idsOf([]keyserver.Operation{keyserver.OpExportKey})}); err != nil {
			t.Error(err)
		}
	})
}

func updateRole(ctx context.Context, r keyserver.Role) func(*sqlstore.Tx) error {
	return func(tx *sqlstore.Tx) error {
		return tx.UpdateRole(ctx, keyserver.RoleChange{ID: r.ID, Operations: r.Operations})
	}
}
