package engine_test

import (
	"context"
	"crypto/rand"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sessionrows"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// keyID returns the id of the key that a hidden link names.
func keyID(t *testing.T, link keyserver.HiddenLink) keyserver.ID {
	t.Helper()
	_, id, ok := link.Split()
	if !ok {
		t.Fatalf("%v names no key", link)
	}
	return id
}

func entryOf(t *testing.T, f *enginetest.Fixture, link keyserver.HiddenLink, p keyserver.PrincipalRef) (keyserver.ACLEntry, bool) {
	t.Helper()
	return enginetest.Must(f.Store.ACL(context.Background(), keyID(t, link)))(t).Entry(p)
}

func give(t *testing.T, f *enginetest.Fixture, by keyserver.Caller, link keyserver.HiddenLink, to keyserver.Caller, rights keyserver.Rights, change ...func(*keyserver.ACLChange)) {
	t.Helper()
	c := keyserver.ACLChange{Link: link, Principal: to.Principal, Rights: rights, MaxUsage: keyserver.NoUsageLimit}
	for _, fn := range change {
		fn(&c)
	}
	if err := f.GrantACL(context.Background(), by, c); err != nil {
		t.Fatal(err)
	}
}

// TestWhoDeletesAPrincipal checks which callers may delete which principals, and which principals may be the new owner.
// A refusal does not change the principal.
func TestWhoDeletesAPrincipal(t *testing.T) {
	ctx := context.Background()
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		add := func(name string, roles []keyserver.ID, groups ...keyserver.ID) keyserver.Caller {
			return f.Add(t, keyserver.PasswordPrincipal, name, roles, groups)
		}
		team := f.Add(t, keyserver.GroupPrincipal, "team", nil, nil).Principal.ID
		deleting := role(t, f, "deleting", keyserver.OpDeletePrincipal)
		clerk := add("clerk", []keyserver.ID{deleting}, team)
		plain, owner := add("plain", nil), add("owner", []keyserver.ID{keyserver.RoleEncryptor})
		f.Mint(t, owner, nil)
		writer := add("writer", []keyserver.ID{keyserver.RoleAdministrator})
		template := enginetest.Must(f.CreateACLTemplate(ctx, writer, "writer's"))(t)
		demanded := f.Add(t, keyserver.GroupPrincipal, "demanded", nil, nil)
		if err := f.PutACLTemplateMember(ctx, writer, keyserver.TemplateMembership{Template: template, Member: keyserver.TemplateMember{
			Principal: demanded.Principal, Rights: keyserver.MandatoryGroup | keyserver.Read, MaxUsage: keyserver.NoUsageLimit,
		}}); err != nil {
			t.Fatal(err)
		}
		off := add("off", nil)
		system := f.Caller(t, keyserver.CertificatePrincipal, "system").Principal.ID
		if err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error { return tx.SetPrincipalFlags(ctx, off.Principal.ID, 0) }); err != nil {
			t.Fatal(err)
		}
		lent := f.Admin
		lent.Kind, lent.Actor = keyserver.DelegatedSession, plain.Principal
		none := keyserver.ID{}
		for name, c := range map[string]struct {
			by       keyserver.Caller
			id, heir keyserver.ID
			code     fault.Code
			reason   fault.Reason
		}{
			"NoRole":        {plain, owner.Principal.ID, none, fault.AccessDenied, fault.ReasonRoleDenied},
			"Nobody":        {clerk, values.IDFromUint64(99), none, fault.NotFound, fault.ReasonObjectNotFound},
			"System":        {f.Admin, system, none, fault.BuiltInPrincipal, fault.ReasonBuiltIn},
			"Own":           {f.Admin, f.Admin.Principal.ID, none, fault.OwnAccount, fault.ReasonInvalidArgument},
			"OwnGroup":      {clerk, team, none, fault.OwnAccount, fault.ReasonInvalidArgument},
			"SoleOwner":     {f.Admin, owner.Principal.ID, none, fault.InUse, fault.ReasonInUse},
			"SoleWriter":    {f.Admin, writer.Principal.ID, none, fault.InUse, fault.ReasonInUse},
			"Demanded":      {f.Admin, demanded.Principal.ID, plain.Principal.ID, fault.InUse, fault.ReasonInUse},
			"NoHeir":        {f.Admin, owner.Principal.ID, values.IDFromUint64(99), fault.InvalidArgument, fault.ReasonObjectNotFound},
			"HeirOfHimself": {f.Admin, owner.Principal.ID, owner.Principal.ID, fault.InvalidArgument, fault.ReasonInvalidArgument},
			"HeirOff":       {f.Admin, owner.Principal.ID, off.Principal.ID, fault.InvalidArgument, fault.ReasonInvalidArgument},
			"HeirSystem":    {f.Admin, owner.Principal.ID, system, fault.InvalidArgument, fault.ReasonInvalidArgument},
			"HeirSelf":      {f.Admin, owner.Principal.ID, f.Admin.Principal.ID, fault.OwnAccount, fault.ReasonInvalidArgument},
			"HeirOwnGroup":  {clerk, owner.Principal.ID, team, fault.OwnAccount, fault.ReasonInvalidArgument},
			"HeirNotHis":    {clerk, owner.Principal.ID, plain.Principal.ID, fault.Escalation, fault.ReasonEscalation},
		} {
			t.Run(name, func(t *testing.T) {
				_, err := f.DeletePrincipal(ctx, c.by, keyserver.PrincipalDeletion{ID: c.id, NewOwner: c.heir})
				f.Refused(t, err, c.code, c.reason)
				if c.id == values.IDFromUint64(99) {
					return
				}
				if _, err := f.Store.Principal(ctx, c.id); err != nil {
					t.Errorf("it is gone after all: %v", err)
				}
			})
		}
		if _, err := f.DeletePrincipal(ctx, lent, keyserver.PrincipalDeletion{ID: owner.Principal.ID}); err == nil {
			t.Error("a session that acts for an administrator deleted somebody")
		}
		if _, err := f.DeletePrincipal(ctx, clerk, keyserver.PrincipalDeletion{ID: plain.Principal.ID}); err != nil {
			t.Error(err)
		}
	})
}

// TestWhoDeletesWhomWhereDutiesAreApart checks deletions if duties are separated: a caller with one duty cannot remove
// the other duty. A caller that may not act as an officer cannot choose the new owner of the officer's keys.
func TestWhoDeletesWhomWhereDutiesAreApart(t *testing.T) {
	ctx := context.Background()
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		e, admin, officer, _ := apart(t, f)
		deleting := role(t, f, "deleting", keyserver.OpDeletePrincipal)
		clerk := f.Add(t, keyserver.PasswordPrincipal, "clerk", []keyserver.ID{deleting}, nil)
		heir := f.Add(t, keyserver.PasswordPrincipal, "heir", nil, nil).Principal.ID
		user := f.Add(t, keyserver.PasswordPrincipal, "user", []keyserver.ID{keyserver.RoleEncryptor}, nil)
		link := f.Mint(t, user, nil)
		_, err := e.DeletePrincipal(ctx, clerk, keyserver.PrincipalDeletion{ID: admin.Principal.ID})
		f.Refused(t, err, fault.Escalation, fault.ReasonEscalation)
		_, err = e.DeletePrincipal(ctx, admin, keyserver.PrincipalDeletion{ID: officer.Principal.ID, NewOwner: heir})
		f.Refused(t, err, fault.Escalation, fault.ReasonEscalation)
		if _, err := e.DeletePrincipal(ctx, admin, keyserver.PrincipalDeletion{ID: user.Principal.ID, NewOwner: heir}); err != nil {
			t.Fatal(err)
		}
		if entry, _ := entryOf(t, f, link, keyserver.PrincipalRef{System: f.Prepared.System, ID: heir}); !entry.Rights.Has(keyserver.Owner) {
			t.Errorf("the heir's entry is %+v", entry)
		}
	})
}

// TestAnEstate checks the result of a deletion. The new owner owns only the keys that no other principal owns. Every
// ACL entry of the principal is expired, but a mandatory group stays mandatory. The principal has no session and no
// certificate.
func TestAnEstate(t *testing.T) {
	ctx := context.Background()
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		both := []keyserver.ID{keyserver.RoleAdministrator, keyserver.RoleEncryptor}
		group := f.Add(t, keyserver.GroupPrincipal, "group", nil, nil)
		agent := f.Add(t, keyserver.CertificatePrincipal, "/CN=agent", both, []keyserver.ID{group.Principal.ID})
		heir := f.Add(t, keyserver.PasswordPrincipal, "heir", both, nil)
		other := f.Add(t, keyserver.PasswordPrincipal, "other", both, nil)
		alone, limited, shared, lent, ending := f.Mint(t, agent, nil), f.Mint(t, agent, nil), f.Mint(t, agent, nil), f.Mint(t, other, nil), f.Mint(t, agent, nil)
		give(t, f, agent, limited, heir, keyserver.Read, func(c *keyserver.ACLChange) { c.MaxUsage = 3 })
		give(t, f, agent, shared, other, keyserver.Owner)
		give(t, f, other, lent, agent, keyserver.Read|keyserver.MandatoryGroup)
		give(t, f, agent, ending, other, keyserver.Owner, func(c *keyserver.ACLChange) { c.End = values.StampOf(f.Clock.Now().AddDate(1, 0, 0)) })
		own, with := enginetest.Must(f.CreateACLTemplate(ctx, agent, "own"))(t), enginetest.Must(f.CreateACLTemplate(ctx, other, "with"))(t)
		if err := f.PutACLTemplateMember(ctx, other, keyserver.TemplateMembership{Template: with, Member: keyserver.TemplateMember{
			Principal: agent.Principal, Rights: keyserver.Owner, MaxUsage: keyserver.NoUsageLimit,
		}}); err != nil {
			t.Fatal(err)
		}
		if err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			return tx.InsertSession(ctx, sessionrows.SessionRecord{
				ID: enginetest.Must(values.NewID(rand.Reader))(t), Principal: agent.Principal, Kind: keyserver.CertificateSession,
				CreatedAt: f.Clock.Now(), ExpiresAt: f.Clock.Now().AddDate(0, 0, 1), LastUsedAt: f.Clock.Now(),
			})
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Key(ctx, agent, alone); err != nil { // puts the key into the caches
			t.Fatal(err)
		}

		done, err := f.DeletePrincipal(ctx, f.Admin, keyserver.PrincipalDeletion{ID: agent.Principal.ID, NewOwner: heir.Principal.ID})
		if err != nil || done.Sessions != 1 || done.Entries != 5 {
			t.Fatalf("got %+v, %v", done, err)
		}
		if row := f.LastRow(t); row.Operation != "deletePrincipal" || row.Object != agent.Principal.ID.Hex()+" to "+heir.Principal.ID.Hex() {
			t.Errorf("the row is %+v", row)
		}
		if _, err := f.Key(ctx, agent, alone); fault.CodeOf(err) != fault.SessionNotFound {
			t.Errorf("whoever is gone: %v", err)
		}
		for name, c := range map[string]struct {
			link   keyserver.HiddenLink
			rights keyserver.Rights
		}{
			"Alone": {alone, keyserver.Owner.Widen()}, "Limited": {limited, keyserver.Owner.Widen()},
			"Ending": {ending, keyserver.Owner.Widen()}, "Shared": {shared, 0}, "Lent": {lent, 0},
		} {
			entry, ok := entryOf(t, f, c.link, heir.Principal)
			if ok != (c.rights != 0) || entry.Rights != c.rights || ok && (entry.MaxUsage != keyserver.NoUsageLimit || !entry.End.IsUnset()) {
				t.Errorf("%s: the heir's entry is %+v", name, entry)
			}
			if was, ok := entryOf(t, f, c.link, agent.Principal); !ok || was.End != values.StampOf(f.Clock.Now()) {
				t.Errorf("%s: the entry that was is %+v", name, was)
			}
		}
		if _, err := f.HMAC(ctx, other, keyserver.HMACRequest{Link: lent, Message: text("message")}); fault.CodeOf(err) != fault.ACLDenied {
			t.Errorf("what the entry demanded has lapsed: %v", err)
		}
		members := enginetest.Must(f.Store.ACLTemplate(ctx, own))(t).Members
		if len(members) != 1 || members[0].Principal != heir.Principal || members[0].Rights != keyserver.Owner.Widen() {
			t.Errorf("the template has %+v", members)
		}
		if members := enginetest.Must(f.Store.ACLTemplate(ctx, with))(t).Members; len(members) != 1 || members[0].Principal != other.Principal {
			t.Errorf("the other template has %+v", members)
		}
		if list := enginetest.Must(f.Store.CertificatesOf(ctx, agent.Principal.ID, 9))(t); len(list) != 0 {
			t.Errorf("certificates are left: %v", list)
		}
		if list := enginetest.Must(f.Store.GroupMembers(ctx, group.Principal.ID, 9, 0))(t); len(list) != 0 {
			t.Errorf("memberships are left: %v", list)
		}
		if _, err := f.DeletePrincipal(ctx, f.Admin, keyserver.PrincipalDeletion{ID: agent.Principal.ID}); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("twice: %v", err)
		}
	})
}

// TestALargeEstate checks that a new owner gets more keys than one transaction transfers.
func TestALargeEstate(t *testing.T) {
	ctx := context.Background()
	const keys = 401
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		owner, heir := f.Add(t, keyserver.PasswordPrincipal, "owner", nil, nil), f.Add(t, keyserver.PasswordPrincipal, "heir", nil, nil)
		if err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			for i := range keys {
				id := func(of uint64) keyserver.ID { return values.IDFromUint64(of<<32 + uint64(i)) }
				entry := keyserver.ACLEntry{ID: id(3), Principal: owner.Principal, Rights: keyserver.Owner.Widen(), MaxUsage: keyserver.NoUsageLimit}
				key := sqlstore.KeyRecord{ID: id(1), ACL: id(2), Algorithm: keyserver.HMACSHA384, CreatedAt: f.Clock.Now()}
				if err := tx.InsertKey(ctx, key, entry); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		started := f.Clock.Now()
		done, err := f.DeletePrincipal(ctx, f.Admin, keyserver.PrincipalDeletion{ID: owner.Principal.ID, NewOwner: heir.Principal.ID})
		if err != nil || done.Entries != keys {
			t.Fatalf("got %+v, %v", done, err)
		}
		owned := enginetest.Must(f.Store.KeysOwnedAlone(ctx, heir.Principal, values.StampOf(started), keys+1))(t)
		if len(owned) != keys {
			t.Errorf("the heir owns %d keys", len(owned))
		}
	})
}
