package engine_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/engine"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/approval"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// apart returns an engine with separated duties on the fixture's database, and its principals. all has every operation
// except Grant Any Operation, so that only the separation of duties can refuse its requests.
func apart(t *testing.T, f *enginetest.Fixture) (e *engine.Engine, admin, officer, all keyserver.Caller) {
	t.Helper()
	ctx := context.Background()
	for _, b := range keyserver.BuiltInRoles(keyserver.Split) {
		r := b.Role()
		if err := f.Store.Update(ctx, updateRole(ctx, r)); err != nil {
			t.Fatal(err)
		}
	}
	config := f.Config
	config.Deployment = keyserver.Split
	e = engine.New(config)
	nothing := keyserver.ApprovalSubject{Subject: approval.ByID(keyserver.RoleSubject, keyserver.ID{}), Digest: rowmac.Digest(nil)}
	if err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		return tx.InsertApproval(ctx, keyserver.Approval{ID: claimed, Subjects: []keyserver.ApprovalSubject{nothing}})
	}); err != nil {
		t.Fatal(err)
	}
	admin = f.Add(t, keyserver.PasswordPrincipal, "administrator", []keyserver.ID{keyserver.RoleAdministrator}, nil)
	officer = f.Add(t, keyserver.PasswordPrincipal, "officer", []keyserver.ID{keyserver.RoleSecurityOfficer}, nil)
	all = f.Add(t, keyserver.PasswordPrincipal, "all", []keyserver.ID{role(t, f, "all", keyserver.Operations...)}, nil)
	return e, admin, officer, all
}

// claimed is the id of the approval that apart creates.
var claimed = values.IDFromUint64(77)

// approved returns the caller with an approval to give duties.
func approved(by keyserver.Caller) keyserver.Caller {
	by.Approval, by.Approved = claimed, []string{approval.GiveDuties}
	return by
}

// TestWhoGivesWhatWhereDutiesAreApart checks that with separated duties a principal needs an approval to give its own
// duty. The Administrator gives the use of keys without an approval.
func TestWhoGivesWhatWhereDutiesAreApart(t *testing.T) {
	ctx := context.Background()
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		e, admin, officer, _ := apart(t, f)
		clerk := f.Add(t, keyserver.PasswordPrincipal, "clerk", []keyserver.ID{role(t, f, "managing", managing...)}, nil)
		for name, c := range map[string]struct {
			reason string
			by     keyserver.Caller
			role   keyserver.ID
			ok     bool
			asks   bool // needs an approval
		}{
			"AdministratorAdministrator": {"holds it", admin, keyserver.RoleAdministrator, true, true},
			"AdministratorEncryptor":     {"gives the use of keys without using any", admin, keyserver.RoleEncryptor, true, false},
			"AdministratorExchanger":     {"delegation is a use of keys", admin, keyserver.RoleExchanger, true, false},
			"AdministratorOfficer":       {"trust is not his", admin, keyserver.RoleSecurityOfficer, false, false},
			"AdministratorAuditor":       {"nor is the trail", admin, keyserver.RoleAuditor, false, false},
			"OfficerOfficer":             {"holds it", officer, keyserver.RoleSecurityOfficer, true, true},
			"OfficerAdministrator":       {"administration is not his", officer, keyserver.RoleAdministrator, false, false},
			"OfficerEncryptor":           {"the use of keys is the Administrator's to give", officer, keyserver.RoleEncryptor, false, false},
			"OfficerAuditor":             {"the configuration is the Administrator's to give", officer, keyserver.RoleAuditor, false, false},
			"ClerkEncryptor":             {"a part of administration is not Administrator", clerk, keyserver.RoleEncryptor, false, false},
		} {
			to := f.Add(t, keyserver.PasswordPrincipal, "to "+name, nil, nil).Principal.ID
			given := keyserver.PrincipalRoles{ID: to, Roles: []keyserver.ID{c.role}}
			err := e.SetPrincipalRoles(ctx, c.by, given)
			if c.asks {
				f.Refused(t, err, fault.ApprovalRequired, fault.ReasonApprovalRequired)
				if got := enginetest.Must(f.Store.Principal(ctx, to))(t).Roles; len(got) > 0 {
					t.Errorf("%s: %v was given after all", name, got)
				}
				other := c.by
				other.Approval, other.Approved = values.IDFromUint64(77), []string{keyserver.OpExportKey.Key} // approval of another operation
				f.Refused(t, e.SetPrincipalRoles(ctx, other, given), fault.ApprovalRequired, fault.ReasonApprovalRequired)
				err = e.SetPrincipalRoles(ctx, approved(c.by), given)
			}
			switch {
			case c.ok && err != nil:
				t.Errorf("%s: %s: %v", name, c.reason, err)
			case !c.ok:
				f.Refused(t, err, fault.Escalation, fault.ReasonEscalation)
			}
		}
		// An officer can give roles. It cannot use that to remove another duty.
		err := e.SetPrincipalRoles(ctx, officer, keyserver.PrincipalRoles{ID: admin.Principal.ID, Roles: []keyserver.ID{}})
		f.Refused(t, err, fault.Escalation, fault.ReasonEscalation)
		if err := e.SetPrincipalRoles(ctx, admin, keyserver.PrincipalRoles{ID: officer.Principal.ID, Roles: []keyserver.ID{}}); err != nil {
			t.Error(err)
		}
	})
}

// TestDutiesStayApart checks that no change gives one principal two separated duties. Existing conflicts remain, and
// are logged at the start.
func TestDutiesStayApart(t *testing.T) {
	ctx := context.Background()
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		e, admin, _, all := apart(t, f)
		all = approved(all)
		trust := role(t, f, "trust", keyserver.OpAddTrustedCA)
		group := f.Add(t, keyserver.GroupPrincipal, "group", nil, nil).Principal.ID
		officers := f.Add(t, keyserver.GroupPrincipal, "officers", []keyserver.ID{trust}, nil).Principal.ID
		member := f.Add(t, keyserver.PasswordPrincipal, "member", []keyserver.ID{trust}, []keyserver.ID{group}).Principal.ID
		for name, change := range map[string]func() error{
			"Create": func() error {
				_, err := e.CreatePasswordPrincipal(ctx, all, keyserver.NewPasswordPrincipal{Name: "both", Password: "a password", Roles: []keyserver.ID{trust, keyserver.RoleAdministrator}})
				return err
			},
			"Enrol": func() error {
				cert := enginetest.NewAgent(t, f.Prepared.CA, "both", f.Clock.Now(), nil).Certificate
				_, err := e.EnrollCertificates(ctx, all, keyserver.Enrolment{Certificates: [][]byte{cert.Raw}, Roles: []keyserver.ID{trust, keyserver.RoleAdministrator}})
				return err
			},
			"Roles": func() error {
				return e.SetPrincipalRoles(ctx, all, keyserver.PrincipalRoles{ID: member, Roles: []keyserver.ID{trust, keyserver.RoleAuditor}})
			},
			"RolesOfGroup": func() error {
				return e.SetPrincipalRoles(ctx, all, keyserver.PrincipalRoles{ID: group, Roles: []keyserver.ID{keyserver.RoleAdministrator}})
			},
			"Member": func() error {
				return e.AddGroupMember(ctx, all, keyserver.Membership{Group: officers, Member: admin.Principal.ID})
			},
			"Role": func() error {
				return e.UpdateRole(ctx, all, keyserver.RoleChange{ID: trust, Operations: idsOf([]keyserver.Operation{keyserver.OpAddTrustedCA, keyserver.OpCreateRole})})
			},
		} {
			t.Run(name, func(t *testing.T) { f.Refused(t, change(), fault.DutiesConflict, fault.ReasonDutiesConflict) })
		}
		for name, roles := range map[string][]keyserver.ID{"Other": {keyserver.RoleAdministrator}, "Beside": {trust, keyserver.RoleEncryptor}} {
			if err := e.SetPrincipalRoles(ctx, all, keyserver.PrincipalRoles{ID: member, Roles: roles}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := e.SetPrincipalRoles(ctx, all, keyserver.PrincipalRoles{ID: f.Admin.Principal.ID, Roles: []keyserver.ID{keyserver.RoleAdministrator}}); err != nil {
			t.Error(err)
		}

		var log bytes.Buffer
		if err := engine.LogDutyConflicts(ctx, f.Store, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
			t.Fatal(err)
		}
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "name=all") {
			t.Errorf("the start names %s", got)
		}
		before := enginetest.Must(f.Store.Principal(ctx, all.Principal.ID))(t).Roles
		if err := e.SetPrincipalRoles(ctx, f.Add(t, keyserver.PasswordPrincipal, "second", []keyserver.ID{keyserver.RoleAdministrator}, nil),
			keyserver.PrincipalRoles{ID: all.Principal.ID, Roles: append(before, keyserver.RoleEncryptor)}); err != nil {
			t.Errorf("what was together before is in the way of another change: %v", err)
		}
	})
}

// TestADutyIsNotLeftToNobody checks that the last principal with a duty keeps it. The principal cannot be deleted or
// disabled, and cannot lose its roles, its group or the operations of its role.
func TestADutyIsNotLeftToNobody(t *testing.T) {
	ctx := context.Background()
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		e, admin, officer, all := apart(t, f)
		off := func(who keyserver.Caller, yes bool) keyserver.FlagChange {
			change := keyserver.FlagChange{ID: who.Principal.ID, Mask: keyserver.FlagEnable}
			if !yes {
				change.Value = keyserver.FlagEnable
			}
			return change
		}
		if err := e.UpdatePrincipalFlags(ctx, admin, off(all, true)); err != nil {
			t.Fatal(err)
		}
		last := func(err error) {
			t.Helper()
			f.Refused(t, err, fault.InUse, fault.ReasonInUse)
		}
		id := officer.Principal.ID
		_, err := e.DeletePrincipal(ctx, admin, keyserver.PrincipalDeletion{ID: id})
		last(err)
		last(e.SetPrincipalRoles(ctx, admin, keyserver.PrincipalRoles{ID: id}))
		last(e.UpdatePrincipalFlags(ctx, admin, off(officer, true)))
		if p := enginetest.Must(f.Store.Principal(ctx, id))(t); p.Flags.Disabled() || len(p.Roles) != 1 {
			t.Errorf("it was done after all: %+v", p)
		}
		f.Add(t, keyserver.PasswordPrincipal, "second", []keyserver.ID{keyserver.RoleSecurityOfficer}, nil)
		for _, err := range []error{
			e.UpdatePrincipalFlags(ctx, admin, off(officer, true)),
			e.UpdatePrincipalFlags(ctx, admin, off(officer, false)),
			e.SetPrincipalRoles(ctx, admin, keyserver.PrincipalRoles{ID: id}),
		} {
			if err != nil {
				t.Errorf("beside another one: %v", err)
			}
		}
		if _, err := e.DeletePrincipal(ctx, admin, keyserver.PrincipalDeletion{ID: id}); err != nil {
			t.Errorf("beside another one: %v", err)
		}
	})
}
