package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// TestPeersAreRefused checks that a peer can send requests only for its own principals, and only for forwarded
// operations.
func TestPeersAreRefused(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		link := f.Mint(t, f.Admin, nil)
		foreign := values.NewHiddenLink(9, values.IDFromUint64(1))
		ask := func(by keyserver.Caller, link keyserver.HiddenLink) func() error {
			return func() error { _, err := f.AuthorizeKey(ctx, by, keyserver.Use{Link: link}); return err }
		}
		f.Refused(t, ask(enginetest.CallOf("early", "0"), link)(), fault.AccessDenied, fault.ReasonNotForwarded) // the peer is not registered yet
		added := enginetest.Must(f.AddTrustedServer(ctx, f.Admin, f.TrustedPeer(t)))(t)
		transport := keyserver.PrincipalRef{System: f.Prepared.System, ID: added.Transport}

		with := func(change func(*keyserver.Caller)) keyserver.Caller {
			by := enginetest.CallOf("x", "1")
			change(&by)
			return by
		}
		cases := map[string]struct {
			reason string
			call   func() error
			code   fault.Code
			audit  fault.Reason
		}{
			"Unlisted":     {"no entry", ask(enginetest.CallOf("x", "1"), link), fault.ACLDenied, fault.ReasonACLDenied},
			"OtherSystem":  {"a principal of a third key server", ask(with(func(c *keyserver.Caller) { c.Principal.System = 8 }), link), fault.AccessDenied, fault.ReasonNotForwarded},
			"OurPrincipal": {"a principal of ours", ask(with(func(c *keyserver.Caller) { c.Principal = f.Admin.Principal }), link), fault.AccessDenied, fault.ReasonNotForwarded},
			"OurGroup":     {"a group of ours", ask(with(func(c *keyserver.Caller) { c.Peer.Groups = []keyserver.PrincipalRef{f.Admin.Principal} }), link), fault.AccessDenied, fault.ReasonNotForwarded},
			"PeerItself":   {"a key is used for somebody", ask(with(func(c *keyserver.Caller) { c.Principal = transport }), link), fault.AccessDenied, fault.ReasonNotForwarded},
			"OurActor":     {"a principal of ours acts", ask(with(func(c *keyserver.Caller) { c.Actor = f.Admin.Principal }), link), fault.AccessDenied, fault.ReasonNotForwarded},
			"UnknownPeer":  {"another key server", ask(with(func(c *keyserver.Caller) { c.Peer.System, c.Principal.System = 8, 8 }), link), fault.AccessDenied, fault.ReasonNotForwarded},
			"SecondHop":    {"what a peer asks for is not forwarded", ask(enginetest.CallOf("x", "1"), foreign), fault.InvalidArgument, fault.ReasonNotForwarded},
			"Mint": {"no keys are made for peers", func() error {
				_, err := f.MintKey(ctx, enginetest.CallOf("x", "1"), keyserver.NewKey{Algorithm: keyserver.AES256})
				return err
			}, fault.AccessDenied, fault.ReasonNotForwarded},
			"Export": {"nor exported", func() error {
				_, err := f.ExportKey(ctx, enginetest.CallOf("x", "1"), keyserver.KeyExport{Link: link, Recipient: transport})
				return err
			}, fault.AccessDenied, fault.ReasonNotForwarded},
			"ReadPrincipal": {"nor principals listed", func() error {
				_, err := f.Principal(ctx, enginetest.CallOf("x", "1"), f.Admin.Principal.ID)
				return err
			}, fault.AccessDenied, fault.ReasonNotForwarded},
			"Metadata": {"metadata is for transport principals", func() error { _, err := f.Key(ctx, enginetest.CallOf("x", "1"), link); return err }, fault.AccessDenied, fault.ReasonNotTransport},
		}
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				f.Refused(t, tc.call(), tc.code, tc.audit)
				if row := f.LastRow(t); row.Kind != keyserver.PeerSession || row.RequestID != "from the peer" {
					t.Errorf("%s: the row is %+v", tc.reason, row)
				}
			})
		}

		// The peer itself and its principals may look up principals.
		for _, by := range []keyserver.Caller{with(func(c *keyserver.Caller) { c.Principal = transport }), enginetest.CallOf("x", "1")} {
			if found := enginetest.Must(f.LookupPrincipals(ctx, by, []keyserver.PrincipalRef{f.Admin.Principal}))(t); len(found) != 1 {
				t.Errorf("%v finds %v", by.Principal, found)
			}
		}
		// A grant to a group applies to callers in the groups that the peer reports.
		f.Grant(t, link, keyserver.PrincipalRef{System: enginetest.PeerSystem, ID: values.IDFromUint64(80)}, keyserver.Read, keyserver.NoUsageLimit)
		f.Refused(t, ask(enginetest.CallOf("x", "1", 79), link)(), fault.ACLDenied, fault.ReasonACLDenied)
		if err := ask(enginetest.CallOf("x", "1", 79, 80), link)(); err != nil {
			t.Error(err)
		}
		metadata := enginetest.CallOf("x", "1", 80)
		metadata.Type = keyserver.CertificatePrincipal
		if _, err := f.Key(ctx, metadata, link); err != nil {
			t.Error(err)
		}
		// All calls of a removed peer are refused.
		enginetest.Must(f.RemoveTrustedServer(ctx, f.Admin, enginetest.PeerSystem))(t)
		f.Refused(t, ask(enginetest.CallOf("x", "1", 80), link)(), fault.AccessDenied, fault.ReasonNotForwarded)
	})
}

// TestRepeatedCalls checks that a repeated call of a peer takes effect only once, and returns the same result.
func TestRepeatedCalls(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		enginetest.Must(f.AddTrustedServer(ctx, f.Admin, f.TrustedPeer(t)))(t)
		who := enginetest.CallOf("x", "").Principal
		link := f.Mint(t, f.Admin, nil)
		f.Grant(t, link, who, keyserver.Read, 2)
		use := func(key string) error {
			_, err := f.AuthorizeKey(ctx, enginetest.CallOf("x", key), keyserver.Use{Link: link})
			return err
		}
		mac := func(key string) error {
			_, err := f.HMAC(ctx, enginetest.CallOf("x", key), keyserver.HMACRequest{Link: link, Message: text("m")})
			return err
		}
		for _, err := range []error{use("a"), use("a"), use("a"), mac("b"), mac("b"), use("a")} {
			if err != nil {
				t.Errorf("a repetition: %v", err)
			}
		}
		f.Refused(t, use("c"), fault.ACLDenied, fault.ReasonACLDenied)
		f.Refused(t, use("c"), fault.ACLDenied, fault.ReasonACLDenied) // a refused call can be repeated
		f.Grant(t, link, who, keyserver.Read, 3)                       // resets the number of uses
		if err := use("c"); err != nil {
			t.Errorf("granted meanwhile: %v", err)
		}

		// An owner at the peer removes its own ACL entry, and repeats the call.
		other := f.Mint(t, f.Admin, nil)
		f.Grant(t, other, who, keyserver.Owner, keyserver.NoUsageLimit)
		target := keyserver.PrincipalRef{System: enginetest.PeerSystem, ID: values.IDFromUint64(71)}
		change := keyserver.ACLChange{Principal: target, Rights: keyserver.Read, MaxUsage: 5}
		for range 2 {
			if err := f.GrantACL(ctx, enginetest.CallOf("x", "grant"), forKey(other, change)); err != nil {
				t.Errorf("granted twice: %v", err)
			}
		}
		for range 2 {
			if err := f.RevokeACL(ctx, enginetest.CallOf("x", "revoke target"), keyserver.ACLRevocation{Link: other, Principal: target}); err != nil {
				t.Errorf("revoked twice: %v", err)
			}
		}
		for range 2 {
			if err := f.RevokeACL(ctx, enginetest.CallOf("x", "revoke"), keyserver.ACLRevocation{Link: other, Principal: who}); err != nil {
				t.Errorf("his own revoked twice: %v", err)
			}
		}
		f.Refused(t, f.RevokeACL(ctx, enginetest.CallOf("x", "again"), keyserver.ACLRevocation{Link: other, Principal: who}), fault.ACLDenied, fault.ReasonACLDenied)
		acl := enginetest.Must(f.ACL(ctx, f.Admin, other))(t)
		if _, ok := acl.Entry(who); ok || len(acl.Entries) != 1 {
			t.Errorf("the list is %+v", acl.Entries)
		}
	})
}

// TestRepetitionsAreRefused checks that a repeated call is refused if anything except the effect of the first call is a
// reason to refuse it.
func TestRepetitionsAreRefused(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		added := enginetest.Must(f.AddTrustedServer(ctx, f.Admin, f.TrustedPeer(t)))(t)
		who := enginetest.CallOf("x", "").Principal
		group := keyserver.PrincipalRef{System: enginetest.PeerSystem, ID: values.IDFromUint64(80)}
		amend := func(link keyserver.HiddenLink, change func(*keyserver.ACLChange)) error {
			c := keyserver.ACLChange{Principal: who, Rights: keyserver.Read, MaxUsage: 1}
			change(&c)
			return f.AmendACL(ctx, f.Admin, forKey(link, c))
		}
		now := func() keyserver.Stamp { return values.StampOf(f.Clock.Now()) }
		switched := func(flags keyserver.Flags) error {
			return f.UpdatePrincipalFlags(ctx, f.Admin, keyserver.FlagChange{ID: added.Transport, Mask: keyserver.FlagEnable, Value: flags})
		}
		restriction := keyserver.ID{}
		none := func(keyserver.HiddenLink) error { return nil }
		cases := map[string]struct {
			reason   string
			meantime func(link keyserver.HiddenLink) error
			change   func(*keyserver.Caller)
			code     fault.Code
			audit    fault.Reason
			undo     func() error
		}{
			"Revoked": {reason: "the owner took the entry away", code: fault.ACLDenied, audit: fault.ReasonACLDenied,
				meantime: func(link keyserver.HiddenLink) error {
					return f.RevokeACL(ctx, f.Admin, keyserver.ACLRevocation{Link: link, Principal: who})
				}},
			"Closed": {reason: "the entry's time is over", code: fault.ACLDenied, audit: fault.ReasonACLDenied,
				meantime: func(link keyserver.HiddenLink) error {
					return amend(link, func(c *keyserver.ACLChange) { c.End = now() })
				}},
			"NoRightLeft": {reason: "the entry gives something else now", code: fault.ACLDenied, audit: fault.ReasonACLDenied,
				meantime: func(link keyserver.HiddenLink) error {
					return amend(link, func(c *keyserver.ACLChange) { c.Rights = keyserver.MandatoryGroup })
				}},
			"Demand": {reason: "the list demands a group", code: fault.ACLDenied, audit: fault.ReasonACLDenied,
				meantime: func(link keyserver.HiddenLink) error {
					return f.GrantACL(ctx, f.Admin, keyserver.ACLChange{Link: link, Principal: group, Rights: keyserver.MandatoryGroup, MaxUsage: -1})
				}},
			"Disabled": {reason: "the peer was shut out", code: fault.PrincipalOff, audit: fault.ReasonPrincipalDisabled,
				meantime: func(keyserver.HiddenLink) error { return switched(0) }, undo: func() error { return switched(keyserver.FlagEnable) }},
			"Restricted": {reason: "the principal was shut out", code: fault.AccessDenied, audit: fault.ReasonRestricted,
				meantime: func(keyserver.HiddenLink) (err error) {
					restriction, err = f.CreatePrincipalTrust(ctx, f.Admin, keyserver.PrincipalTrust{Principal: who.ID, Server: enginetest.PeerSystem, Flag: keyserver.Restrict})
					return err
				}, undo: func() error { return f.DeletePrincipalTrust(ctx, f.Admin, restriction) }},
			"Expired": {reason: "nobody repeats a call for so long", code: fault.ACLDenied, audit: fault.ReasonACLDenied,
				meantime: func(keyserver.HiddenLink) error { f.Clock.Advance(10 * time.Minute); return nil }},
			"OtherKey": {reason: "another call, which finds the use used up", code: fault.ACLDenied, audit: fault.ReasonACLDenied,
				meantime: none, change: func(by *keyserver.Caller) { by.Peer.Key[0]++ }},
			"SingleUsedUp": {reason: "a call that is not repeated finds the use used up", code: fault.ACLDenied, audit: fault.ReasonACLDenied,
				meantime: none, change: func(by *keyserver.Caller) { by.Peer.Single = true }},
			"Single": {reason: "a call that is not repeated has the key of another", code: fault.InvalidArgument, audit: fault.ReasonInvalidArgument,
				meantime: func(link keyserver.HiddenLink) error {
					return amend(link, func(c *keyserver.ACLChange) { c.MaxUsage = 5 })
				},
				change: func(by *keyserver.Caller) { by.Peer.Single = true }},
		}
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				link := f.Mint(t, f.Admin, nil)
				f.Grant(t, link, who, keyserver.Read, 1)
				by := enginetest.CallOf("x", name)
				for range 2 {
					if _, err := f.HMAC(ctx, by, keyserver.HMACRequest{Link: link, Message: text("m")}); err != nil {
						t.Fatalf("in force: %v", err)
					}
				}
				if err := tc.meantime(link); err != nil {
					t.Fatal(err)
				}
				if tc.change != nil {
					tc.change(&by)
				}
				_, err := f.HMAC(ctx, by, keyserver.HMACRequest{Link: link, Message: text("m")})
				f.Refused(t, err, tc.code, tc.audit)
				if tc.undo != nil {
					if err := tc.undo(); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	})
}

// TestPeersAreToldLess checks which fields a peer receives in a lookup: that the principal exists, its type, whether it
// is disabled and, unless a restriction for the peer exists, its name. It never receives roles or groups.
func TestPeersAreToldLess(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		enginetest.Must(f.AddTrustedServer(ctx, f.Admin, f.TrustedPeer(t)))(t)
		team := f.Add(t, keyserver.GroupPrincipal, "team", []keyserver.ID{keyserver.RoleAuditor}, nil)
		member := func(name string, flags keyserver.Flags) keyserver.PrincipalRef {
			p := f.Add(t, keyserver.PasswordPrincipal, name, []keyserver.ID{keyserver.RoleEncryptor}, []keyserver.ID{team.Principal.ID}).Principal
			setFlags(t, f, p, flags)
			return p
		}
		plain, shown, off := member("plain", delegable), member("shown", keyserver.FlagEnable), member("off", keyserver.FlagDelegation)
		hidden, hiddenOff := member("hidden", keyserver.FlagEnable), member("hidden and off", 0)
		for p, flag := range map[keyserver.PrincipalRef]keyserver.TrustFlag{shown: keyserver.Expose, hidden: keyserver.Restrict, hiddenOff: keyserver.Restrict} {
			enginetest.Must(f.CreatePrincipalTrust(ctx, f.Admin, keyserver.PrincipalTrust{Principal: p.ID, Server: enginetest.PeerSystem, Flag: flag}))(t)
		}
		gone := keyserver.PrincipalRef{System: f.Prepared.System, ID: values.IDFromUint64(99)}
		brief := func(p keyserver.PrincipalRef, name string, flags keyserver.Flags) keyserver.Principal {
			return keyserver.Principal{
				ID: p.ID, System: p.System, Type: keyserver.PasswordPrincipal, Name: name, Flags: flags, Roles: []keyserver.ID{}, Groups: []keyserver.ID{},
			}
		}
		got := enginetest.Must(f.LookupPrincipals(ctx, enginetest.CallOf("x", "1"), []keyserver.PrincipalRef{plain, shown, off, hidden, hiddenOff, gone}))(t)
		want := []keyserver.Principal{
			brief(plain, "plain", keyserver.FlagEnable), brief(shown, "shown", keyserver.FlagEnable), brief(off, "off", 0),
			brief(hidden, hidden.ID.Hex(), keyserver.FlagEnable), brief(hiddenOff, hiddenOff.ID.Hex(), 0),
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("a peer is told: %s", diff)
		}
		own := enginetest.Must(f.LookupPrincipals(ctx, f.Admin, []keyserver.PrincipalRef{hidden}))(t)
		if len(own) != 1 || own[0].Name != "hidden" || len(own[0].Roles) != 1 || len(own[0].Groups) != 1 {
			t.Errorf("whoever logs in here is told: %+v", own)
		}
	})
}

// TestActorsAndPeers checks the acting principal of a delegated session like the delegator: it must be exposed to the
// peer, and the owner of a key can restrict it.
func TestActorsAndPeers(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		enginetest.Must(f.AddTrustedServer(ctx, f.Admin, f.TrustedPeer(t)))(t)
		boss := f.Add(t, keyserver.PasswordPrincipal, "boss", []keyserver.ID{keyserver.RoleEncryptor}, nil)
		setFlags(t, f, boss.Principal, delegable)
		team := f.Add(t, keyserver.GroupPrincipal, "team", nil, nil)
		actor := f.Add(t, keyserver.PasswordPrincipal, "actor", nil, []keyserver.ID{team.Principal.ID})
		expose := func(p keyserver.PrincipalRef, flag keyserver.TrustFlag) keyserver.ID {
			return enginetest.Must(f.CreatePrincipalTrust(ctx, f.Admin, keyserver.PrincipalTrust{Principal: p.ID, Server: enginetest.PeerSystem, Flag: flag}))(t)
		}
		expose(boss.Principal, keyserver.Expose)
		at := recorder{Auditor: f.Rows}
		cfg := f.Config
		cfg.Peers = &at
		e := engine.New(cfg)
		foreign := values.NewHiddenLink(enginetest.PeerSystem, values.IDFromUint64(1))
		delegated := func() error {
			_, err := e.HMAC(ctx, actingFor(actor, boss), keyserver.HMACRequest{Link: foreign, Message: text("m")})
			return err
		}

		f.Refused(t, delegated(), fault.AccessDenied, fault.ReasonNotExposed)
		row := expose(actor.Principal, keyserver.Restrict)
		f.Refused(t, delegated(), fault.AccessDenied, fault.ReasonNotExposed)
		if len(at.events) != 0 {
			t.Errorf("the peer was told of an actor that is not exposed to it: %v", at.events)
		}
		if err := f.DeletePrincipalTrust(ctx, f.Admin, row); err != nil {
			t.Fatal(err)
		}
		expose(team.Principal, keyserver.Expose)
		if err := delegated(); err != nil {
			t.Errorf("a group that the actor is in is exposed: %v", err)
		}

		// In the other direction, a principal of the peer acts for another one.
		link := f.Mint(t, f.Admin, nil)
		by := enginetest.CallOf("x", "a")
		by.Actor = keyserver.PrincipalRef{System: enginetest.PeerSystem, ID: values.IDFromUint64(72)}
		f.Grant(t, link, by.Principal, keyserver.Read, keyserver.NoUsageLimit)
		f.Grant(t, link, by.Actor, keyserver.Read, keyserver.NoUsageLimit) // only a principal with an ACL entry can be restricted here
		use := func(by keyserver.Caller) error {
			_, err := f.AuthorizeKey(ctx, by, keyserver.Use{Link: link})
			return err
		}
		if err := use(by); err != nil {
			t.Fatal(err)
		}
		expose(by.Actor, keyserver.Restrict)
		f.Refused(t, use(by), fault.AccessDenied, fault.ReasonRestricted)
		if err := use(enginetest.CallOf("x", "b")); err != nil {
			t.Errorf("without the actor: %v", err)
		}
	})
}

// TestRepeatedChangesAreRefused checks that a repeated change of an ACL takes effect only once. The caller still needs
// the right to make the change, unless the change may have removed that right.
func TestRepeatedChangesAreRefused(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		enginetest.Must(f.AddTrustedServer(ctx, f.Admin, f.TrustedPeer(t)))(t)
		who := enginetest.CallOf("x", "").Principal
		target := keyserver.PrincipalRef{System: enginetest.PeerSystem, ID: values.IDFromUint64(71)}
		link := f.Mint(t, f.Admin, nil)
		f.Grant(t, link, who, keyserver.Owner, keyserver.NoUsageLimit)
		change := keyserver.ACLChange{Principal: target, Rights: keyserver.Read, MaxUsage: keyserver.NoUsageLimit}
		by := enginetest.CallOf("x", "grant")
		if err := f.GrantACL(ctx, by, forKey(link, change)); err != nil {
			t.Fatal(err)
		}
		single := enginetest.CallOf("x", "grant")
		single.Peer.Single = true
		if err := f.GrantACL(ctx, single, forKey(link, change)); fault.CodeOf(err) != fault.InvalidArgument {
			t.Errorf("a call with the key of another: %v", err)
		}
		if err := f.RevokeACL(ctx, f.Admin, keyserver.ACLRevocation{Link: link, Principal: target}); err != nil {
			t.Fatal(err)
		}
		if err := f.GrantACL(ctx, by, forKey(link, change)); err != nil {
			t.Errorf("repeated: %v", err)
		}
		if _, ok := enginetest.Must(f.ACL(ctx, f.Admin, link))(t).Entry(target); ok {
			t.Error("a repetition took effect")
		}
		if err := f.RevokeACL(ctx, f.Admin, keyserver.ACLRevocation{Link: link, Principal: who}); err != nil {
			t.Fatal(err)
		}
		f.Refused(t, f.GrantACL(ctx, by, forKey(link, change)), fault.ACLDenied, fault.ReasonACLDenied)

		f.Grant(t, link, who, keyserver.Owner, keyserver.NoUsageLimit)
		own := enginetest.CallOf("x", "own")
		for range 2 {
			if err := f.RevokeACL(ctx, own, keyserver.ACLRevocation{Link: link, Principal: who}); err != nil {
				t.Errorf("his own: %v", err)
			}
		}
		f.Clock.Advance(10 * time.Minute)
		f.Refused(t, f.RevokeACL(ctx, own, keyserver.ACLRevocation{Link: link, Principal: who}), fault.ACLDenied, fault.ReasonACLDenied)
	})
}

// TestACallThatFailedIsNotRemembered checks that an effect and the record of its call are written in one transaction.
func TestACallThatFailedIsNotRemembered(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		enginetest.Must(f.AddTrustedServer(ctx, f.Admin, f.TrustedPeer(t)))(t)
		by := enginetest.CallOf("x", "a")
		link := f.Mint(t, f.Admin, nil)
		f.Grant(t, link, by.Principal, keyserver.Owner, keyserver.NoUsageLimit)
		missing := keyserver.PrincipalRef{System: 99, ID: values.IDFromUint64(1)}
		if err := f.GrantACL(ctx, by, keyserver.ACLChange{Link: link, Principal: missing, Rights: keyserver.Read, MaxUsage: -1}); fault.CodeOf(err) != fault.NotFound {
			t.Fatalf("got %v", err)
		}
		err := f.Store.Update(context.Background(), func(tx *sqlstore.Tx) error {
			known, err := tx.PeerCallKnown(context.Background(), by.Peer.Key, f.Clock.Now())
			if known {
				t.Error("a call that failed is remembered")
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}
