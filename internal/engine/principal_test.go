package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

var disable = keyserver.FlagChange{Mask: keyserver.FlagEnable}

// forPrincipal sets the principal in a change of flags.
func forPrincipal(id keyserver.ID, change keyserver.FlagChange) keyserver.FlagChange {
	change.ID = id
	return change
}

// TestPrincipalOperationsAreRefused checks that the engine makes its own checks, without those of package verified.
func TestPrincipalOperationsAreRefused(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		team := f.Add(t, keyserver.GroupPrincipal, "team", nil, nil).Principal.ID
		user := f.Add(t, keyserver.LDAPPrincipal, "user", nil, nil).Principal.ID
		full := f.Add(t, keyserver.LDAPPrincipal, "full", nil, nil).Principal.ID
		officer := f.Add(t, keyserver.PasswordPrincipal, "officer", []keyserver.ID{keyserver.RoleSecurityOfficer}, nil)
		nobody := values.IDFromUint64(404)
		if err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			for i := range uint64(keyserver.MaxGroups) {
				g := keyserver.Principal{ID: values.IDFromUint64(9000 + i), Type: keyserver.GroupPrincipal, Name: fmt.Sprint(i)}
				if err := tx.InsertPrincipal(ctx, g, ""); err != nil {
					return err
				}
				if err := tx.AddGroupMember(ctx, g.ID, full); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		create := func(n keyserver.NewPrincipal) func(keyserver.Caller) error {
			return func(by keyserver.Caller) error { _, err := f.CreatePrincipal(ctx, by, n); return err }
		}
		flags := func(id keyserver.ID) func(keyserver.Caller) error {
			return func(by keyserver.Caller) error { return f.UpdatePrincipalFlags(ctx, by, forPrincipal(id, disable)) }
		}
		roles := func(id, role keyserver.ID) func(keyserver.Caller) error {
			return func(by keyserver.Caller) error {
				return f.SetPrincipalRoles(ctx, by, keyserver.PrincipalRoles{ID: id, Roles: []keyserver.ID{role}})
			}
		}
		add := func(group, member keyserver.ID) func(keyserver.Caller) error {
			return func(by keyserver.Caller) error {
				return f.AddGroupMember(ctx, by, keyserver.Membership{Group: group, Member: member})
			}
		}
		window := func(limit, offset int) func(keyserver.Caller) error {
			return func(by keyserver.Caller) error {
				_, err := f.ListPrincipals(ctx, by, keyserver.PrincipalFilter{Type: keyserver.LDAPPrincipal, Limit: limit, Offset: offset})
				return err
			}
		}
		identity := &keyserver.Identity{Issuer: "i", Subject: "s"}
		cases := map[string]struct {
			do     func(keyserver.Caller) error
			code   fault.Code
			reason fault.Reason
		}{
			"CreateCertificate": {create(keyserver.NewPrincipal{Type: keyserver.CertificatePrincipal, Name: "n"}), fault.InvalidArgument, fault.ReasonInvalidArgument},
			"CreatePassword":    {create(keyserver.NewPrincipal{Type: keyserver.PasswordPrincipal, Name: "n"}), fault.InvalidArgument, fault.ReasonInvalidArgument},
			"CreateNoType":      {create(keyserver.NewPrincipal{Name: "n"}), fault.InvalidArgument, fault.ReasonInvalidArgument},
			"XAuthWithout":      {create(keyserver.NewPrincipal{Type: keyserver.XAuthPrincipal, Name: "n"}), fault.InvalidArgument, fault.ReasonInvalidArgument},
			"GroupWith":         {create(keyserver.NewPrincipal{Type: keyserver.GroupPrincipal, Name: "n", Identity: identity}), fault.InvalidArgument, fault.ReasonInvalidArgument},
			"NameTaken":         {create(keyserver.NewPrincipal{Type: keyserver.GroupPrincipal, Name: "team"}), fault.AlreadyExists, fault.ReasonInvalidArgument},
			"RoleUnknown":       {create(keyserver.NewPrincipal{Type: keyserver.GroupPrincipal, Name: "n", Roles: []keyserver.ID{nobody}}), fault.InvalidArgument, fault.ReasonObjectNotFound},
			"FlagsOfGroup":      {flags(team), fault.InvalidArgument, fault.ReasonInvalidArgument},
			"FlagsOfNobody":     {flags(nobody), fault.NotFound, fault.ReasonObjectNotFound},
			"RolesOfNobody":     {roles(nobody, keyserver.RoleAuditor), fault.NotFound, fault.ReasonObjectNotFound},
			"RolesUnknown":      {roles(user, nobody), fault.InvalidArgument, fault.ReasonObjectNotFound},
			"AddToNoGroup":      {add(user, full), fault.NotFound, fault.ReasonObjectNotFound},
			"AddToNothing":      {add(nobody, user), fault.NotFound, fault.ReasonObjectNotFound},
			"AddNobody":         {add(team, nobody), fault.NotFound, fault.ReasonObjectNotFound},
			"AddGroup":          {add(team, values.IDFromUint64(9000)), fault.InvalidArgument, fault.ReasonInvalidArgument},
			"TooManyGroups":     {add(team, full), fault.InvalidArgument, fault.ReasonInvalidArgument},
			"RemoveNoMember": {func(by keyserver.Caller) error {
				return f.RemoveGroupMember(ctx, by, keyserver.Membership{Group: team, Member: user})
			}, fault.NotFound, fault.ReasonObjectNotFound},
			"MembersOfNoGroup": {func(by keyserver.Caller) error {
				_, err := f.GroupMembers(ctx, by, keyserver.GroupFilter{Group: user, Limit: 1})
				return err
			}, fault.NotFound, fault.ReasonObjectNotFound},
			"WindowAbove":       {window(keyserver.MaxUnwindowed+1, 0), fault.InvalidArgument, fault.ReasonInvalidArgument},
			"WindowBelow":       {window(-1, 0), fault.InvalidArgument, fault.ReasonInvalidArgument},
			"WindowBeforeStart": {window(1, -1), fault.InvalidArgument, fault.ReasonInvalidArgument},
			"LookupWithoutBound": {func(by keyserver.Caller) error {
				_, err := f.LookupPrincipals(ctx, by, make([]keyserver.PrincipalRef, 501))
				return err
			}, fault.InvalidArgument, fault.ReasonInvalidArgument},
		}
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) { f.Refused(t, tc.do(f.Admin), tc.code, tc.reason) })
		}
		for name, do := range map[string]func(keyserver.Caller) error{
			"Create": create(keyserver.NewPrincipal{Type: keyserver.GroupPrincipal, Name: "n"}), "Flags": flags(user),
			"Roles": roles(user, keyserver.RoleAuditor), "Add": add(team, user),
			"Remove": func(by keyserver.Caller) error {
				return f.RemoveGroupMember(ctx, by, keyserver.Membership{Group: team, Member: user})
			},
		} {
			t.Run("Officer"+name, func(t *testing.T) { f.Refused(t, do(officer), fault.AccessDenied, fault.ReasonRoleDenied) })
		}
		if p := enginetest.Must(f.Principal(ctx, f.Admin, user))(t); p.Flags != keyserver.FlagEnable || len(p.Roles)+len(p.Groups) != 0 {
			t.Errorf("refused and changed all the same: %+v", p)
		}
	})
}

// TestSystemDefinedPrincipalsAreSkipped checks that updates of such principals change nothing and succeed.
func TestSystemDefinedPrincipalsAreSkipped(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		team := f.Add(t, keyserver.GroupPrincipal, "team", nil, nil).Principal.ID
		id := f.Caller(t, keyserver.CertificatePrincipal, bootstrap.SystemName).Principal.ID
		before := enginetest.Must(f.Principal(ctx, f.Admin, id))(t)
		for name, err := range map[string]error{
			"Flags":  f.UpdatePrincipalFlags(ctx, f.Admin, forPrincipal(id, disable)),
			"Roles":  f.SetPrincipalRoles(ctx, f.Admin, keyserver.PrincipalRoles{ID: id}),
			"Add":    f.AddGroupMember(ctx, f.Admin, keyserver.Membership{Group: team, Member: id}),
			"Remove": f.RemoveGroupMember(ctx, f.Admin, keyserver.Membership{Group: team, Member: id}),
		} {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if diff := cmp.Diff(before, enginetest.Must(f.Principal(ctx, f.Admin, id))(t)); diff != "" {
			t.Error(diff)
		}
	})
}

// TestFlagsMoveBitByBit checks that two concurrent changes of different flags both take effect.
func TestFlagsMoveBitByBit(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		user := f.Add(t, keyserver.PasswordPrincipal, "user", nil, nil).Principal.ID
		errs := make(chan error)
		for _, c := range []keyserver.FlagChange{disable, {Mask: keyserver.FlagDelegation, Value: keyserver.FlagDelegation}} {
			go func() { errs <- f.UpdatePrincipalFlags(ctx, f.Admin, forPrincipal(user, c)) }()
		}
		for range 2 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if p := enginetest.Must(f.Principal(ctx, f.Admin, user))(t); p.Flags != keyserver.FlagDelegation {
			t.Errorf("got %#x", uint32(p.Flags))
		}
	})
}

// TestMembersComeAndGo checks that changes of memberships take effect immediately, and that lists of members are
// limited.
func TestMembersComeAndGo(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		link := f.Mint(t, f.Admin, nil)
		team := f.Add(t, keyserver.GroupPrincipal, "team", []keyserver.ID{keyserver.RoleExchanger}, nil).Principal
		f.Grant(t, link, team, keyserver.Read, keyserver.NoUsageLimit)
		user := f.Add(t, keyserver.PasswordPrincipal, "user", nil, nil)
		for range 2 {
			_, err := f.HMAC(ctx, user, keyserver.HMACRequest{Link: link, Message: text("m")})
			f.Refused(t, err, fault.AccessDenied, fault.ReasonRoleDenied)
			for range 2 { // adding an existing member changes nothing
				if err := f.AddGroupMember(ctx, f.Admin, keyserver.Membership{Group: team.ID, Member: user.Principal.ID}); err != nil {
					t.Fatal(err)
				}
			}
			enginetest.Must(f.HMAC(ctx, user, keyserver.HMACRequest{Link: link, Message: text("m")}))(t)
			if err := f.RemoveGroupMember(ctx, f.Admin, keyserver.Membership{Group: team.ID, Member: user.Principal.ID}); err != nil {
				t.Fatal(err)
			}
		}

		members := func(limit, offset int) int {
			return len(enginetest.Must(f.GroupMembers(ctx, f.Admin, keyserver.GroupFilter{Group: team.ID, Limit: limit, Offset: offset}))(t))
		}
		add := func(from, to int) {
			if err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error {
				for i := from; i < to; i++ {
					p := keyserver.Principal{ID: values.IDFromUint64(uint64(7000 + i)), Type: keyserver.LDAPPrincipal, Name: fmt.Sprint(i), Groups: []keyserver.ID{team.ID}}
					if err := tx.InsertPrincipal(ctx, p, ""); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		add(0, keyserver.MaxUnwindowed)
		if n := members(0, 0); n != keyserver.MaxUnwindowed {
			t.Errorf("%d members are listed", n)
		}
		add(keyserver.MaxUnwindowed, keyserver.MaxUnwindowed+1)
		_, err := f.GroupMembers(ctx, f.Admin, keyserver.GroupFilter{Group: team.ID})
		f.Refused(t, err, fault.InvalidArgument, fault.ReasonInvalidArgument)
		if !strings.Contains(err.Error(), "page") {
			t.Errorf("%v does not say to page", err)
		}
		if n, rest := members(1000, 0), members(1000, 1000); n != 1000 || rest != 25 {
			t.Errorf("pages of 1000 have %d and %d members", n, rest)
		}
	})
}

// TestLookupIsOfThisKeyServer checks that a lookup returns the principals of this key
// server in the order of the pairs.
func TestLookupIsOfThisKeyServer(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		a, b := f.Add(t, keyserver.LDAPPrincipal, "a", nil, nil).Principal, f.Add(t, keyserver.XAuthPrincipal, "b", nil, nil).Principal
		foreign := keyserver.PrincipalRef{System: a.System + 1, ID: a.ID}
		found := enginetest.Must(f.LookupPrincipals(ctx, f.Admin, []keyserver.PrincipalRef{b, foreign, {System: a.System, ID: values.IDFromUint64(404)}, a, b}))(t)
		var got []keyserver.PrincipalRef
		for _, p := range found {
			got = append(got, p.Ref())
		}
		if diff := cmp.Diff([]keyserver.PrincipalRef{b, a, b}, got); diff != "" {
			t.Error(diff)
		}
	})
}
