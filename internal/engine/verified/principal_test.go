package verified_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// principalLiar is a real key server with wrong results for principals.
type principalLiar struct {
	keyserver.Port
	deceit
	distort func(*keyserver.Principal) // changes the principals that are read back
	// meanwhile is called between the read and the write, as another caller.
	meanwhile func()
}

func (l *principalLiar) Principal(ctx context.Context, by keyserver.Caller, id keyserver.ID) (keyserver.Principal, error) {
	if err := l.reading(); err != nil {
		return keyserver.Principal{}, err
	}
	p, err := l.Port.Principal(ctx, by, id)
	if l.writes > 0 && l.distort != nil {
		l.distort(&p)
	}
	return p, err
}

func (l *principalLiar) CreatePrincipal(ctx context.Context, by keyserver.Caller, p keyserver.NewPrincipal) (id keyserver.ID, err error) {
	id = values.IDFromUint64(404)
	err = l.send(func() (err error) { id, err = l.Port.CreatePrincipal(ctx, by, p); return err })
	return id, err
}

func (l *principalLiar) CreatePasswordPrincipal(ctx context.Context, by keyserver.Caller, p keyserver.NewPasswordPrincipal) (id keyserver.ID, err error) {
	id = values.IDFromUint64(404)
	err = l.send(func() (err error) { id, err = l.Port.CreatePasswordPrincipal(ctx, by, p); return err })
	return id, err
}

func (l *principalLiar) UpdatePrincipalFlags(ctx context.Context, by keyserver.Caller, c keyserver.FlagChange) error {
	if l.meanwhile != nil {
		l.meanwhile()
	}
	return l.send(func() error { return l.Port.UpdatePrincipalFlags(ctx, by, c) })
}

func (l *principalLiar) SetPrincipalRoles(ctx context.Context, by keyserver.Caller, r keyserver.PrincipalRoles) error {
	return l.send(func() error { return l.Port.SetPrincipalRoles(ctx, by, r) })
}

func (l *principalLiar) AddDelegate(ctx context.Context, by keyserver.Caller, d keyserver.Delegate) error {
	return l.send(func() error { return l.Port.AddDelegate(ctx, by, d) })
}

func (l *principalLiar) RemoveDelegate(ctx context.Context, by keyserver.Caller, d keyserver.Delegate) error {
	return l.send(func() error { return l.Port.RemoveDelegate(ctx, by, d) })
}

func (l *principalLiar) AddGroupMember(ctx context.Context, by keyserver.Caller, m keyserver.Membership) error {
	return l.send(func() error { return l.Port.AddGroupMember(ctx, by, m) })
}

func (l *principalLiar) RemoveGroupMember(ctx context.Context, by keyserver.Caller, m keyserver.Membership) error {
	return l.send(func() error { return l.Port.RemoveGroupMember(ctx, by, m) })
}

// people is a key server with a principalLiar. It has a user, a group and a member of the group.
type people struct {
	*verified.Service
	liar                 *principalLiar
	admin                keyserver.Caller
	user, member, system keyserver.ID
	team                 keyserver.ID
}

// forPrincipal sets the principal in a change of flags.
func forPrincipal(id keyserver.ID, change keyserver.FlagChange) keyserver.FlagChange {
	change.ID = id
	return change
}

func newPeople(t testing.TB, f *enginetest.Fixture) *people {
	t.Helper()
	p := &people{liar: &principalLiar{Port: f.Engine}, admin: f.Admin}
	p.Service = verified.New(p.liar)
	p.team = f.Add(t, keyserver.GroupPrincipal, "team", nil, nil).Principal.ID
	p.user = f.Add(t, keyserver.PasswordPrincipal, "user", nil, nil).Principal.ID
	p.member = f.Add(t, keyserver.PasswordPrincipal, "member", nil, []keyserver.ID{p.team}).Principal.ID
	p.system = f.Caller(t, keyserver.CertificatePrincipal, bootstrap.SystemName).Principal.ID
	return p
}

var (
	disable   = keyserver.FlagChange{Mask: keyserver.FlagEnable}
	delegate  = keyserver.FlagChange{Mask: keyserver.FlagDelegation, Value: keyserver.FlagDelegation}
	auditors  = []keyserver.ID{keyserver.RoleAuditor}
	xauthWeb  = keyserver.NewPrincipal{Type: keyserver.XAuthPrincipal, Name: "web", Identity: &keyserver.Identity{Issuer: "i", Subject: "s", Audiences: []string{"b", "a"}}}
	principal = map[string]struct {
		do  func(p *people) (claims bool, err error)
		bad fault.Code // the code if the write reads back wrong
	}{
		"CreateXAuth": {bad: fault.NotSaved, do: func(p *people) (bool, error) {
			r, err := p.CreatePrincipal(ctx, p.admin, xauthWeb)
			return r.Saved, err
		}},
		"CreateGroup": {bad: fault.NotSaved, do: func(p *people) (bool, error) {
			r, err := p.CreatePrincipal(ctx, p.admin, keyserver.NewPrincipal{Type: keyserver.GroupPrincipal, Name: "g", Roles: auditors})
			return r.Saved, err
		}},
		"CreatePassword": {bad: fault.NotSaved, do: func(p *people) (bool, error) {
			r, err := p.CreatePasswordPrincipal(ctx, p.admin, keyserver.NewPasswordPrincipal{Name: "new", Password: "long enough", Roles: auditors})
			return r.Saved, err
		}},
		"Disable": {bad: fault.NotSaved, do: func(p *people) (bool, error) {
			r, err := p.UpdatePrincipalFlags(ctx, p.admin, forPrincipal(p.user, disable))
			return r.Saved, err
		}},
		"Delegate": {bad: fault.NotSaved, do: func(p *people) (bool, error) {
			r, err := p.UpdatePrincipalFlags(ctx, p.admin, forPrincipal(p.user, delegate))
			return r.Saved, err
		}},
		"SetRoles": {bad: fault.NotSaved, do: func(p *people) (bool, error) {
			r, err := p.SetPrincipalRoles(ctx, p.admin, keyserver.PrincipalRoles{ID: p.user, Roles: auditors})
			return r.Saved, err
		}},
		"AddDelegate": {bad: fault.NotSaved, do: func(p *people) (bool, error) {
			r, err := p.AddDelegate(ctx, p.admin, keyserver.Delegate{Principal: p.user, Delegate: p.member})
			return r.Done, err
		}},
		"AddMember": {bad: fault.NotSaved, do: func(p *people) (bool, error) {
			r, err := p.AddGroupMember(ctx, p.admin, keyserver.Membership{Group: p.team, Member: p.user})
			return r.Done, err
		}},
		"RemoveMember": {bad: fault.NotRemoved, do: func(p *people) (bool, error) {
			r, err := p.RemoveGroupMember(ctx, p.admin, keyserver.Membership{Group: p.team, Member: p.member})
			return r.Done, err
		}},
	}
)

// TestVerdictsOnPrincipals checks that a write succeeds only if the principal that is read back has the change.
func TestVerdictsOnPrincipals(t *testing.T) {
	lies := map[string]struct {
		reason string
		lie    func(*principalLiar)
		want   func(bad fault.Code) fault.Code
	}{
		"None":      {"an honest key server", func(*principalLiar) {}, func(fault.Code) fault.Code { return "" }},
		"Swallowed": {"success without effect", func(l *principalLiar) { l.swallow = true }, func(bad fault.Code) fault.Code { return bad }},
		"Dropped": {
			"nothing that may have had an effect is repeated", func(l *principalLiar) { l.dropAfter = errors.New("connection reset") },
			func(fault.Code) fault.Code { return fault.OpFailed },
		},
		"Unread": {
			"the effect is unknown, so no 503 that promises there was none",
			func(l *principalLiar) { l.readFails = fault.New(fault.StoreUnavailable, "gone") },
			func(fault.Code) fault.Code { return fault.ReadbackFailed },
		},
	}
	for name, tc := range lies {
		t.Run(name, func(t *testing.T) {
			enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
				p := newPeople(t, f)
				for op, write := range principal {
					*p.liar = principalLiar{Port: f.Engine}
					tc.lie(p.liar)
					claims, err := write.do(p)
					if want := tc.want(write.bad); fault.CodeOf(err) != want || claims != (want == "") {
						t.Errorf("%s, %s: got success %v and %v, want %q", op, tc.reason, claims, err, want)
					}
					if p.liar.writes != 1 {
						t.Errorf("%s: %d writes were sent, want 1", op, p.liar.writes)
					}
				}
			})
		})
	}
}

// TestPrincipalsThatReadBackOtherwise checks that each requested field is compared with the field that is read back.
func TestPrincipalsThatReadBackOtherwise(t *testing.T) {
	cases := map[string]struct {
		op      string
		distort func(*keyserver.Principal)
	}{
		"Name":      {"CreateXAuth", func(p *keyserver.Principal) { p.Name = "other" }},
		"Type":      {"CreateGroup", func(p *keyserver.Principal) { p.Type = keyserver.LDAPPrincipal }},
		"Roles":     {"CreateGroup", func(p *keyserver.Principal) { p.Roles = nil }},
		"MoreRoles": {"SetRoles", func(p *keyserver.Principal) { p.Roles = append(p.Roles, keyserver.RoleAdministrator) }},
		"NoneOfIt":  {"CreateXAuth", func(p *keyserver.Principal) { p.Identity = nil }},
		"Issuer":    {"CreateXAuth", func(p *keyserver.Principal) { p.Identity.Issuer = "j" }},
		"Subject":   {"CreateXAuth", func(p *keyserver.Principal) { p.Identity.Subject = "S" }},
		"Audience":  {"CreateXAuth", func(p *keyserver.Principal) { p.Identity.Audiences = nil }},
		"Identity":  {"CreateGroup", func(p *keyserver.Principal) { p.Identity = &keyserver.Identity{} }},
		// A key server that sets the entire flag word also changes other flags.
		"OtherBit": {"Disable", func(p *keyserver.Principal) { p.Flags |= 0x80 }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := newPeople(t, enginetest.New(t, enginetest.Databases["SQLite"](t)))
			p.liar.distort = tc.distort
			if claims, err := principal[tc.op].do(p); claims || fault.CodeOf(err) != fault.NotSaved {
				t.Errorf("got success %v and %v", claims, err)
			}
		})
	}
}

// TestFlagsOfTwoWriters checks that two callers can change different flags at the same time, and that the detail
// reports the other change.
func TestFlagsOfTwoWriters(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		p := newPeople(t, f)
		*p.liar = principalLiar{Port: f.Engine, meanwhile: func() {
			if err := f.UpdatePrincipalFlags(ctx, p.admin, forPrincipal(p.user, disable)); err != nil {
				t.Fatal(err)
			}
		}}
		r, err := p.UpdatePrincipalFlags(ctx, p.admin, forPrincipal(p.user, delegate))
		if err != nil || !r.Saved || r.Before != keyserver.FlagEnable || r.After != keyserver.FlagDelegation || !strings.Contains(r.Detail, "disabled is true now") {
			t.Errorf("got %+v, %v", r, err)
		}
	})
}

// TestVerdictOnAnyFlagWord checks random flags and random key servers: a write succeeds exactly if the changed flags
// are as requested, and no flag changed that callers cannot set.
func TestVerdictOnAnyFlagWord(t *testing.T) {
	p := newPeople(t, enginetest.New(t, enginetest.Databases["SQLite"](t)))
	honest := p.liar.Port
	rapid.Check(t, func(r *rapid.T) {
		change := keyserver.FlagChange{
			ID:    p.user,
			Mask:  rapid.SampledFrom([]keyserver.Flags{keyserver.FlagEnable, keyserver.FlagDelegation, keyserver.FlagEnable | keyserver.FlagDelegation}).Draw(r, "mask"),
			Value: keyserver.Flags(rapid.Uint32().Draw(r, "value")),
		}
		before, err := honest.Principal(ctx, p.admin, p.user)
		if err != nil {
			r.Fatal(err)
		}
		after := change.Apply(before.Flags)
		if rapid.Bool().Draw(r, "lies") {
			after ^= keyserver.Flags(1) << rapid.IntRange(0, 31).Draw(r, "bit")
		}
		*p.liar = principalLiar{Port: honest, distort: func(p *keyserver.Principal) { p.Flags = after }}
		got, err := p.UpdatePrincipalFlags(ctx, p.admin, change)
		want := after&change.Mask == change.Value&change.Mask && (after^before.Flags)&^change.Mask&^(keyserver.FlagEnable|keyserver.FlagDelegation) == 0
		if got.Saved != want || (err == nil) != want || got.Before != before.Flags || got.After != after {
			r.Fatalf("%#x became %#x by %+v: %+v, %v", before.Flags, after, change, got, err)
		}
	})
}

func TestPrincipalsRefusedBeforeSending(t *testing.T) {
	p := newPeople(t, enginetest.New(t, enginetest.Databases["SQLite"](t)))
	me, zero, nobody := p.admin.Principal.ID, keyserver.ID{}, values.IDFromUint64(404)
	flags := func(id keyserver.ID, c keyserver.FlagChange) error {
		_, err := p.UpdatePrincipalFlags(ctx, p.admin, forPrincipal(id, c))
		return err
	}
	roles := func(id keyserver.ID) error {
		_, err := p.SetPrincipalRoles(ctx, p.admin, keyserver.PrincipalRoles{ID: id})
		return err
	}
	add := func(group, member keyserver.ID) error {
		_, err := p.AddGroupMember(ctx, p.admin, keyserver.Membership{Group: group, Member: member})
		return err
	}
	remove := func(group, member keyserver.ID) error {
		_, err := p.RemoveGroupMember(ctx, p.admin, keyserver.Membership{Group: group, Member: member})
		return err
	}
	list := func(f keyserver.PrincipalFilter) error { _, err := p.ListPrincipals(ctx, p.admin, f); return err }
	lookup := func(n int, id keyserver.ID) error {
		pairs := make([]keyserver.PrincipalRef, n)
		for i := range pairs {
			pairs[i] = keyserver.PrincipalRef{System: 1, ID: id}
		}
		_, err := p.LookupPrincipals(ctx, p.admin, pairs)
		return err
	}
	identity := func(i keyserver.Identity) error {
		_, err := p.CreatePrincipal(ctx, p.admin, keyserver.NewPrincipal{Type: keyserver.XAuthPrincipal, Name: "n", Identity: &i})
		return err
	}
	cases := map[string]struct {
		reason string
		err    error
		code   fault.Code
	}{
		"FlagsOfZero":        {"zero names nobody", flags(zero, disable), fault.BadRequest},
		"NoFlag":             {"nothing to change", flags(p.user, keyserver.FlagChange{}), fault.BadRequest},
		"SystemDefinedBit":   {"a bit that nobody may set", flags(p.user, keyserver.FlagChange{Mask: keyserver.FlagSystemDefined}), fault.BadRequest},
		"FlagsOfNobody":      {"established by reading", flags(nobody, disable), fault.NotFound},
		"FlagsOfSystem":      {"the key server would skip it", flags(p.system, disable), fault.BuiltInPrincipal},
		"OwnFlags":           {"nobody would be left to undo it", flags(me, delegate), fault.OwnAccount},
		"FlagsOfGroup":       {"a group has none", flags(p.team, disable), fault.NoFlagWord},
		"RolesOfZero":        {"zero names nobody", roles(zero), fault.BadRequest},
		"RolesOfSystem":      {"the key server would skip it", roles(p.system), fault.BuiltInPrincipal},
		"OwnRoles":           {"nobody gives himself rights", roles(me), fault.OwnAccount},
		"RolesOfNobody":      {"established by reading", roles(nobody), fault.NotFound},
		"AddToZero":          {"zero names no group", add(zero, p.user), fault.BadRequest},
		"AddZero":            {"zero names nobody", add(p.team, zero), fault.BadRequest},
		"AddToNoGroup":       {"a user is no group", add(p.user, p.member), fault.NotFound},
		"AddNobody":          {"established by reading", add(p.team, nobody), fault.NotFound},
		"AddGroup":           {"groups do not nest", add(p.team, p.team), fault.BadRequest},
		"AddSelf":            {"a group's roles are rights", add(p.team, me), fault.OwnAccount},
		"AddSystem":          {"the key server would skip it", add(p.team, p.system), fault.BuiltInPrincipal},
		"RemoveNoMember":     {"established by reading", remove(p.team, p.user), fault.NotFound},
		"RemoveSelf":         {"nobody changes his own rights", remove(p.team, me), fault.OwnAccount},
		"NoType":             {"there is no untyped listing", list(keyserver.PrincipalFilter{}), fault.BadRequest},
		"LimitAbove":         {"never a smaller page", list(keyserver.PrincipalFilter{Type: keyserver.LDAPPrincipal, Limit: 501}), fault.BadRequest},
		"LimitBelow":         {"a page has a size", list(keyserver.PrincipalFilter{Type: keyserver.LDAPPrincipal, Limit: -1}), fault.BadRequest},
		"OffsetAlone":        {"no window to move", list(keyserver.PrincipalFilter{Type: keyserver.LDAPPrincipal, Offset: 1}), fault.BadRequest},
		"OffsetBelow":        {"nothing lies before", list(keyserver.PrincipalFilter{Type: keyserver.LDAPPrincipal, Limit: 1, Offset: -1}), fault.BadRequest},
		"LookupNone":         {"nothing to look up", lookup(0, p.user), fault.BadRequest},
		"LookupMany":         {"a list without bound", lookup(501, p.user), fault.BadRequest},
		"LookupZero":         {"zero names nobody", lookup(1, zero), fault.BadRequest},
		"NoIssuer":           {"no token has none", identity(keyserver.Identity{Subject: "s"}), fault.BadRequest},
		"SubjectWithSpace":   {"nobody sees the difference", identity(keyserver.Identity{Issuer: "i", Subject: "s "}), fault.BadRequest},
		"ControlCharacter":   {"no token has one", identity(keyserver.Identity{Issuer: "i", Subject: "s\x00"}), fault.BadRequest},
		"LongIssuer":         {"an index has its limits", identity(keyserver.Identity{Issuer: fmt.Sprintf("%0513d", 0), Subject: "s"}), fault.BadRequest},
		"AudienceOfNoLength": {"would match nothing", identity(keyserver.Identity{Issuer: "i", Subject: "s", Audiences: []string{""}}), fault.BadRequest},
		"ManyAudiences":      {"a list without bound", identity(keyserver.Identity{Issuer: "i", Subject: "s", Audiences: make([]string, 17)}), fault.BadRequest},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if fault.CodeOf(tc.err) != tc.code {
				t.Errorf("%s: got %v, want %s", tc.reason, tc.err, tc.code)
			}
		})
	}
	if p.liar.writes != 0 {
		t.Errorf("%d writes were sent", p.liar.writes)
	}
}
