package engine_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/engine"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/approval"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

func setPolicy(t *testing.T, f *enginetest.Fixture, policy string) {
	t.Helper()
	ctx := context.Background()
	if err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error { return tx.SetApprovalPolicy(ctx, []byte(policy)) }); err != nil {
		t.Fatal(err)
	}
}

// TestWhatARuleGuards checks that a new rule guards the next request of every caller. With a sufficient approval, the
// operation is allowed, and its audit rows name the approval.
func TestWhatARuleGuards(t *testing.T) {
	ctx := context.Background()
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		if _, err := f.Roles(ctx, f.Admin); err != nil {
			t.Fatal(err)
		}
		setPolicy(t, f, `[{"operation":"listRoles","approvers":1,"duty":"trust"}]`)
		_, err := f.Roles(ctx, f.Admin)
		f.Refused(t, err, fault.ApprovalRequired, fault.ReasonApprovalRequired)
		other := approved(f.Admin)
		_, err = f.Roles(ctx, other)
		f.Refused(t, err, fault.ApprovalRequired, fault.ReasonApprovalRequired)
		other.Approved = []string{keyserver.OpListRoles.Key}
		if _, err := f.Roles(ctx, other); err != nil {
			t.Error(err)
		}
		if row := f.LastRow(t); row.Operation != "listRoles" || row.Outcome != keyserver.Allowed || row.Approval != other.Approval {
			t.Errorf("the row of it is %+v", row)
		}
		// A caller without a role for the operation gets ACCESS_DENIED. It learns nothing about rules.
		nobody := f.Add(t, keyserver.PasswordPrincipal, "nobody", nil, nil)
		_, err = f.Roles(ctx, nobody)
		f.Refused(t, err, fault.AccessDenied, fault.ReasonRoleDenied)
		setPolicy(t, f, `[]`)
		if _, err := f.Roles(ctx, f.Admin); err != nil {
			t.Error(err)
		}
	})
}

// TestBreakGlass checks that operations need no approval with --break-glass. Each such operation is logged, and is in
// the audit log before its effect.
func TestBreakGlass(t *testing.T) {
	ctx := context.Background()
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		_, admin, _, _ := apart(t, f)
		config := f.Config
		config.Deployment, config.BreakGlass = keyserver.Split, true
		e := engine.New(config)
		setPolicy(t, f, `[{"operation":"listRoles","approvers":1,"duty":"trust"},{"operation":"giveDuties","approvers":1,"duty":"any"}]`)
		to := f.Add(t, keyserver.PasswordPrincipal, "to", nil, nil).Principal.ID
		before := len(f.AllRows(t))
		if _, err := e.Roles(ctx, admin); err != nil {
			t.Error(err)
		}
		if err := e.SetPrincipalRoles(ctx, admin, keyserver.PrincipalRoles{ID: to, Roles: []keyserver.ID{keyserver.RoleAdministrator}}); err != nil {
			t.Error(err)
		}
		if _, err := e.Principal(ctx, admin, to); err != nil { // no rule guards this operation
			t.Error(err)
		}
		// Rights are still checked.
		err := e.SetPrincipalRoles(ctx, admin, keyserver.PrincipalRoles{ID: to, Roles: []keyserver.ID{keyserver.RoleSecurityOfficer}})
		if fault.CodeOf(err) != fault.Escalation {
			t.Error(err)
		}
		var rows []string
		for _, r := range f.AllRows(t)[before:] {
			rows = append(rows, r.Operation+" "+string(r.Outcome))
		}
		want := "breakGlass allowed,listRoles allowed,breakGlass allowed,updatePrincipalRoles allowed,readPrincipal allowed," +
			"breakGlass allowed,updatePrincipalRoles refused"
		if got := strings.Join(rows, ","); got != want {
			t.Errorf("the trail has %s, want %s", got, want)
		}
		if log := f.Log.String(); strings.Count(log, "level=ERROR") != 3 || !strings.Contains(log, "operation=listRoles") {
			t.Errorf("the log has %s", log)
		}
	})
}

// TestDestroyingAKey checks that with separated duties no principal destroys a key alone. Reversible changes and
// rotations need no approval. A stored policy keeps its rules.
func TestDestroyingAKey(t *testing.T) {
	ctx := context.Background()
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		e, _, _, _ := apart(t, f)
		owner := f.Add(t, keyserver.PasswordPrincipal, "owner", []keyserver.ID{keyserver.RoleEncryptor}, nil)
		former := enginetest.Must(e.MintKey(ctx, owner, keyserver.NewKey{Algorithm: keyserver.HMACSHA384}))(t).Link
		newest := enginetest.Must(e.RotateKey(ctx, owner, former))(t)
		change := func(by keyserver.Caller, act keyserver.KeyAction) error {
			return e.ChangeKeyState(ctx, by, keyserver.KeyStateChange{Link: newest, Action: act, Days: 7})
		}
		allowed := func(by keyserver.Caller, acts ...keyserver.KeyAction) {
			t.Helper()
			for _, act := range acts {
				if err := change(by, act); err != nil {
					t.Errorf("%s: %v", act, err)
				}
			}
		}
		state := func(link keyserver.HiddenLink) keyserver.KeyState {
			return enginetest.Must(e.KeyState(ctx, owner, link))(t).Life.State
		}
		f.Refused(t, change(owner, keyserver.DestroyKey), fault.ApprovalRequired, fault.ReasonApprovalRequired)
		f.Refused(t, change(approved(owner), keyserver.DestroyKey), fault.ApprovalRequired, fault.ReasonApprovalRequired)
		if got := state(newest); got != keyserver.KeyEnabled {
			t.Errorf("the key is %s after a refusal", got)
		}
		allowed(owner, keyserver.DisableKey, keyserver.EnableKey)
		under := approved(owner)
		under.Approved = []string{approval.DestroyKey}
		allowed(under, keyserver.DestroyKey)
		if got := state(newest); got != keyserver.KeyDestroying {
			t.Errorf("the key is %s under an approval", got)
		}
		allowed(owner, keyserver.RestoreKey, keyserver.EnableKey)

		rotation := keyserver.KeyRotation{VerifyOnly: 1, DestroyAfter: 1}
		if err := e.SetKeyRotation(ctx, owner, keyserver.KeyRotationChange{Link: newest, Rotation: rotation}); err != nil {
			t.Fatal(err)
		}
		third := enginetest.Must(e.RotateKey(ctx, owner, newest))(t)
		f.Clock.Advance(25 * time.Hour)
		if err := e.Age(ctx); err != nil {
			t.Fatal(err)
		}
		if got := state(newest); got != keyserver.KeyDestroying {
			t.Errorf("a former key of a line with a rotation is %s", got)
		}

		setPolicy(t, f, `[{"operation":"exportKey","approvers":1,"duty":"trust"}]`)
		newest = third
		allowed(owner, keyserver.DestroyKey)
	})
}

// TestBecomingSomebodyWithADuty checks that enrolling a certificate for a principal with a duty needs an approval: the
// holder of the certificate can log in as that principal.
func TestBecomingSomebodyWithADuty(t *testing.T) {
	ctx := context.Background()
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		e, admin, _, _ := apart(t, f)
		f.Add(t, keyserver.CertificatePrincipal, "/CN=agent", []keyserver.ID{keyserver.RoleAdministrator}, nil)
		f.Add(t, keyserver.CertificatePrincipal, "/CN=workload", []keyserver.ID{keyserver.RoleExchanger}, nil)
		enrol := func(by keyserver.Caller, name string) error {
			cert := enginetest.NewAgent(t, f.Prepared.CA, name, f.Clock.Now(), nil).Certificate
			_, err := e.EnrollCertificates(ctx, by, keyserver.Enrolment{Certificates: [][]byte{cert.Raw}})
			return err
		}
		f.Refused(t, enrol(admin, "agent"), fault.ApprovalRequired, fault.ReasonApprovalRequired)
		if err := enrol(approved(admin), "agent"); err != nil {
			t.Error(err)
		}
		if err := enrol(admin, "workload"); err != nil {
			t.Error(err)
		}
		if rules := approval.Default(keyserver.Split).Of([]string{keyserver.OpEnrollCertificate.Key}); len(rules) != 1 {
			t.Errorf("it can be asked for by %v", rules)
		}
	})
}

// TestWhatChangedSinceTheClaim checks that the objects of an approval are compared again, in the transaction that gives
// a duty and when a recipient's certificate is read.
func TestWhatChangedSinceTheClaim(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		setPolicy(t, f, `[{"operation":"giveDuties","approvers":1,"duty":"any"},{"operation":"exportKey","approvers":1,"duty":"any"}]`)
		service := approval.New(approval.Config{Store: f.Store, Gate: f.Engine, Deployment: keyserver.Unified, Clock: f.Clock.Now, Random: rand.Reader})
		to := f.Add(t, keyserver.PasswordPrincipal, "to", nil, nil).Principal
		agent := f.Add(t, keyserver.CertificatePrincipal, "/CN=agent", nil, nil).Principal
		link := enginetest.Must(f.MintKey(ctx, f.Admin, keyserver.NewKey{Algorithm: keyserver.AES256}))(t).Link
		under := func(rule string, name keyserver.PrincipalRef, op keyserver.Operation) keyserver.Caller {
			v := enginetest.Must(service.Ask(ctx, f.Admin, approval.Request{
				Method: "PUT", Path: "/api/roles", Reason: "why", Operations: []keyserver.Operation{op}, Names: []keyserver.Subject{approval.ByID(keyserver.PrincipalSubject, name.ID)},
			}))(t)
			by := f.Admin
			by.Approval, by.Approved = v.ID, []string{rule}
			return by
		}
		give := func(by keyserver.Caller) error {
			return f.SetPrincipalRoles(ctx, by, keyserver.PrincipalRoles{ID: to.ID, Roles: []keyserver.ID{keyserver.RoleAdministrator}})
		}
		export := func(by keyserver.Caller) error {
			_, err := f.ExportKey(ctx, by, keyserver.KeyExport{Link: link, Recipient: agent})
			return err
		}
		giving, exporting := under(approval.GiveDuties, to, keyserver.OpUpdatePrincipalRoles), under(keyserver.OpExportKey.Key, agent, keyserver.OpExportKey)
		for _, id := range []keyserver.ID{to.ID, agent.ID} {
			if err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error { return tx.SetPassword(ctx, id, "another") }); err != nil {
				t.Fatal(err)
			}
		}
		f.Refused(t, give(giving), fault.ApprovalState, fault.ReasonNotApprovable)
		f.Refused(t, export(exporting), fault.ApprovalState, fault.ReasonNotApprovable)
		if p := enginetest.Must(f.Store.Principal(ctx, to.ID))(t); len(p.Roles) > 0 {
			t.Errorf("it has the roles %v", p.Roles)
		}
		if err := give(under(approval.GiveDuties, to, keyserver.OpUpdatePrincipalRoles)); err != nil {
			t.Error(err)
		}
		if err := export(under(keyserver.OpExportKey.Key, agent, keyserver.OpExportKey)); err != nil {
			t.Error(err)
		}
	})
}
