package engine_test

import (
	"context"
	"crypto/x509"
	"slices"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

var delegable = keyserver.FlagEnable | keyserver.FlagDelegation

func setFlags(t *testing.T, f *enginetest.Fixture, p keyserver.PrincipalRef, flags keyserver.Flags) {
	t.Helper()
	if err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error { return tx.SetPrincipalFlags(ctx, p.ID, flags) }); err != nil {
		t.Fatal(err)
	}
}

// actingFor returns the caller of a delegated session in which actor acts for delegator.
func actingFor(actor, delegator keyserver.Caller) keyserver.Caller {
	delegator.Kind, delegator.Actor, delegator.Certificate = keyserver.DelegatedSession, actor.Principal, actor.Certificate
	return delegator
}

func TestDelegatedLoginIsRefused(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		exchanger := f.Add(t, keyserver.PasswordPrincipal, "exchanger", []keyserver.ID{keyserver.RoleExchanger}, nil)
		encryptor := f.Add(t, keyserver.PasswordPrincipal, "encryptor", []keyserver.ID{keyserver.RoleEncryptor}, nil)
		boss := f.Add(t, keyserver.PasswordPrincipal, "boss", []keyserver.ID{keyserver.RoleEncryptor}, nil)
		plain := f.Add(t, keyserver.PasswordPrincipal, "plain", nil, nil)
		off := f.Add(t, keyserver.PasswordPrincipal, "off", nil, nil)
		agent := f.Add(t, keyserver.CertificatePrincipal, "agent", nil, nil)
		setFlags(t, f, boss.Principal, delegable)
		setFlags(t, f, off.Principal, keyserver.FlagDelegation)
		chained := f.Add(t, keyserver.PasswordPrincipal, "chained", []keyserver.ID{keyserver.RoleExchanger}, nil)
		setFlags(t, f, chained.Principal, delegable)
		setFlags(t, f, agent.Principal, delegable)
		enginetest.Must(f.ResetTransportPrincipal(ctx, f.Admin, agent.Principal.ID))(t)

		scoped := exchanger
		scoped.Kind, scoped.Scope = keyserver.ScopedSession, []keyserver.HiddenLink{f.Mint(t, f.Admin, nil)}
		var words string
		for name, tc := range map[string]struct {
			by        keyserver.Caller
			delegator keyserver.ID
			code      fault.Code
			reason    fault.Reason
		}{
			"NoRole":        {encryptor, boss.Principal.ID, fault.AccessDenied, fault.ReasonRoleDenied},
			"NoRoleNobody":  {encryptor, values.IDFromUint64(99), fault.AccessDenied, fault.ReasonRoleDenied},
			"Chained":       {actingFor(f.Admin, chained), boss.Principal.ID, fault.AccessDenied, fault.ReasonChained},
			"Scoped":        {scoped, boss.Principal.ID, fault.NotInScope, fault.ReasonNotInScope},
			"Unknown":       {exchanger, values.IDFromUint64(99), fault.DelegatorRefused, fault.ReasonDelegator},
			"Zero":          {exchanger, keyserver.ID{}, fault.DelegatorRefused, fault.ReasonDelegator},
			"WithoutFlag":   {exchanger, plain.Principal.ID, fault.DelegatorRefused, fault.ReasonDelegator},
			"Disabled":      {exchanger, off.Principal.ID, fault.DelegatorRefused, fault.ReasonDelegator},
			"NoCertificate": {exchanger, agent.Principal.ID, fault.DelegatorRefused, fault.ReasonDelegator},
		} {
			_, err := f.DelegateLogin(ctx, tc.by, tc.delegator)
			t.Run(name, func(t *testing.T) { f.Refused(t, err, tc.code, tc.reason) })
			if row := f.LastRow(t); row.Operation != "delegateLogin" || row.Object != tc.delegator.Hex() || row.Principal != tc.by.Principal {
				t.Errorf("%s: the row is %+v", name, row)
			}
			if tc.code != fault.DelegatorRefused {
				continue
			}
			if got := fault.As(err).Detail; words == "" {
				words = got
			} else if got != words {
				t.Errorf("%s: %q tells it apart from %q", name, got, words)
			}
		}
		got := enginetest.Must(f.DelegateLogin(ctx, exchanger, boss.Principal.ID))(t)
		if row := f.LastRow(t); got.Ref() != boss.Principal || row.Outcome != keyserver.Allowed {
			t.Errorf("got %v, and the row %+v", got.Ref(), row)
		}
	})
}

// TestDelegationIsJudgedEachTime checks that a delegated session has the rights of the delegator. It is refused as soon
// as actor or delegator may not act.
func TestDelegationIsJudgedEachTime(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		ca := outside(t, f, "outside")
		digest := trust(t, f, ca)
		now := f.Clock.Now()
		cert := enginetest.NewAgent(t, ca, "agent", now, nil).Certificate
		own := enginetest.NewAgent(t, ca, "own", now, nil).Certificate
		agent := session(enrol(t, f, []keyserver.ID{keyserver.RoleExchanger}, cert), cert)
		link := f.Mint(t, f.Admin, nil)
		f.Grant(t, link, agent.Principal, keyserver.Read, keyserver.NoUsageLimit)
		use := func(by keyserver.Caller) error {
			_, err := f.AuthorizeKey(ctx, by, keyserver.Use{Link: link})
			return err
		}
		actor := session(enrol(t, f, nil, own), own)
		setFlags(t, f, agent.Principal, delegable)
		by := actingFor(actor, agent)
		scoped := by
		scoped.Kind, scoped.Scope = keyserver.ScopedSession, []keyserver.HiddenLink{"none of these"}
		asks := func(code fault.Code, reason fault.Reason) {
			t.Helper()
			err := use(by)
			if standing := f.CheckCaller(ctx, by); fault.CodeOf(standing) != code {
				t.Errorf("the standing is %v", standing)
			}
			if code == "" {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			f.Refused(t, err, code, reason)
			if row := f.LastRow(t); row.Principal != agent.Principal || row.Actor != actor.Principal {
				t.Errorf("the row does not name both: %+v", row)
			}
			err = use(scoped) // created in the delegated session, so it ends too
			f.Refused(t, err, code, reason)
		}
		revoke := func(number int64, revoked ...*x509.Certificate) {
			t.Helper()
			enginetest.Must(f.ImportCRL(ctx, f.Admin, enginetest.NewCRL(t, ca, number, f.Clock.Now(), nil, revoked...)))(t)
		}
		policy := func(mode keyserver.RevocationMode) {
			t.Helper()
			if err := f.SetRevocationPolicy(ctx, f.Admin, keyserver.RevocationPolicyChange{Digest: digest, Policy: keyserver.RevocationPolicy{Mode: mode}}); err != nil {
				t.Fatal(err)
			}
		}
		asks("", "")
		setFlags(t, f, agent.Principal, keyserver.FlagEnable)
		asks(fault.DelegatorRefused, fault.ReasonDelegator)
		setFlags(t, f, agent.Principal, keyserver.FlagDelegation)
		asks(fault.DelegatorRefused, fault.ReasonDelegator)
		setFlags(t, f, agent.Principal, delegable)
		asks("", "")
		setFlags(t, f, actor.Principal, 0)
		asks(fault.PrincipalOff, fault.ReasonPrincipalDisabled)
		setFlags(t, f, actor.Principal, keyserver.FlagEnable)

		policy(keyserver.RevocationRequired)
		asks(fault.DelegatorRefused, fault.ReasonDelegator) // the CRL for the delegator's certificate is missing
		revoke(1)
		asks("", "")
		revoke(2, cert)
		asks(fault.DelegatorRefused, fault.ReasonDelegator)
		second := enginetest.NewAgentFor(t, ca, "agent", now, newKey(t), nil).Certificate
		if p := enrol(t, f, nil, second); p.Ref() != agent.Principal {
			t.Fatalf("the second certificate is enrolled for %v", p.Ref())
		}
		asks("", "") // one of the certificates is in force
		policy(keyserver.RevocationOff)
		asks("", "")
		enginetest.Must(f.ResetTransportPrincipal(ctx, f.Admin, agent.Principal.ID))(t)
		asks(fault.DelegatorRefused, fault.ReasonDelegator)
		enrol(t, f, nil, enginetest.NewAgent(t, ca, "agent", now, nil).Certificate)
		enginetest.Must(f.ResetTransportPrincipal(ctx, f.Admin, actor.Principal.ID))(t)
		err := use(by)
		f.Refused(t, err, fault.SessionNotFound, fault.ReasonCertificateEnded)
		ghost := by
		ghost.Actor.ID = values.IDFromUint64(99)
		err = use(ghost)
		f.Refused(t, err, fault.SessionNotFound, fault.ReasonPrincipalDisabled)
		ghost.Actor = keyserver.PrincipalRef{}
		err = use(ghost)
		f.Refused(t, err, fault.SessionNotFound, fault.ReasonPrincipalDisabled)
	})
}

// TestDutiesAreNotLent checks all operations in a delegated session: only uses of keys are allowed. Operations of
// administration, trust or audit are refused, although the delegator has them.
func TestDutiesAreNotLent(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		boss := f.Add(t, keyserver.PasswordPrincipal, "boss", []keyserver.ID{role(t, f, "all", keyserver.Operations...)}, nil)
		setFlags(t, f, boss.Principal, delegable)
		exchanger := f.Add(t, keyserver.PasswordPrincipal, "exchanger", []keyserver.ID{keyserver.RoleExchanger}, nil)
		by := actingFor(exchanger, boss)
		for _, op := range keyserver.Operations {
			err := f.MayDo(ctx, by, op)
			if lent := op.Duty == keyserver.KeyUse; lent != (err == nil) {
				t.Errorf("%s: %v", op.Key, err)
			}
			if err != nil {
				f.Refused(t, err, fault.AccessDenied, fault.ReasonNotLent)
			}
			if err := f.MayDo(ctx, boss, op); err != nil {
				t.Errorf("the delegator himself: %s: %v", op.Key, err)
			}
		}
		if _, err := f.Operations(ctx, by); err == nil {
			t.Error("the operations are listed")
		}
	})
}

// TestBuiltInRolesAreBroughtUpToDate checks that a start updates the built-in roles in the database of an older
// version.
func TestBuiltInRolesAreBroughtUpToDate(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		exchanger := f.Add(t, keyserver.PasswordPrincipal, "exchanger", []keyserver.ID{keyserver.RoleExchanger}, nil)
		role := enginetest.Must(f.Store.Role(ctx, keyserver.RoleExchanger))(t)
		older := slices.DeleteFunc(slices.Clone(role.Operations), func(id keyserver.ID) bool { return id == keyserver.OpDelegateLogin.ID })
		if len(older) == len(role.Operations) {
			t.Fatal("Exchanger lacks the operation from the start")
		}
		if err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			return tx.UpdateRole(ctx, keyserver.RoleChange{ID: role.ID, Operations: older})
		}); err != nil {
			t.Fatal(err)
		}
		_, err := f.DelegateLogin(ctx, exchanger, f.Admin.Principal.ID)
		f.Refused(t, err, fault.AccessDenied, fault.ReasonRoleDenied)
		enginetest.Must(bootstrap.Run(context.Background(), bootstrap.Config{
			Store: f.Store, Keyring: f.Keyring, Deployment: keyserver.Unified, ServerName: "test", Hosts: []string{"localhost"},
			Clock: f.Clock.Now, Random: f.Random,
		}))(t)
		_, err = f.DelegateLogin(ctx, exchanger, f.Admin.Principal.ID)
		f.Refused(t, err, fault.DelegatorRefused, fault.ReasonDelegator)
	})
}
