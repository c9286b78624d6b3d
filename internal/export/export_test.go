package export

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// stranger is a service of another make: it tells less, or holds what no
// manifest can declare. A key server of this project cannot be brought to that.
type stranger struct {
	API
	cas       []schema.TrustedCA
	peers     []schema.TrustedServer
	trusts    []schema.PrincipalTrust
	roles     []schema.Role
	templates []schema.ACLTemplate
	members   []schema.TemplateMember
	found     []schema.TemplatedDirectory
	refusal   error // of looking principals up
}

var one = schema.HexID{0, 0, 0, 0, 0, 0, 0, 1}

func (s *stranger) TrustedCABodies(context.Context) (schema.TrustedCAList, error) {
	return schema.TrustedCAList{TrustedCAs: s.cas}, nil
}

func (s *stranger) TrustedServerBodies(context.Context) (schema.TrustedServerList, error) {
	return schema.TrustedServerList{TrustedServers: s.peers}, nil
}

func (s *stranger) PrincipalTrusts(context.Context, schema.PrincipalTrustsQuery) (schema.PrincipalTrustList, error) {
	return schema.PrincipalTrustList{PrincipalTrusts: s.trusts}, nil
}

func (s *stranger) Operations(context.Context) (schema.OperationList, error) {
	return schema.OperationList{}, nil
}

func (s *stranger) Roles(context.Context) (schema.RoleList, error) {
	return schema.RoleList{Roles: s.roles}, nil
}

func (s *stranger) ACLTemplates(context.Context) (schema.ACLTemplateList, error) {
	return schema.ACLTemplateList{Templates: s.templates}, nil
}

func (s *stranger) TemplateMembers(context.Context, string) (schema.TemplateMemberList, error) {
	return schema.TemplateMemberList{Members: s.members}, nil
}

func (s *stranger) TemplatedDirectories(context.Context, schema.TemplatedDirectoryQuery) (schema.TemplatedDirectoryList, error) {
	return schema.TemplatedDirectoryList{Directories: s.found}, nil
}

func (s *stranger) CurrentSession(context.Context) (schema.Session, error) {
	return schema.Session{Principal: schema.SessionPrincipal{SystemID: 1, PrincipalID: schema.DecimalID{9}}}, nil
}

func (s *stranger) Principals(_ context.Context, q schema.PrincipalQuery) (schema.PrincipalPage, error) {
	return schema.PrincipalPage{Type: q.Type, ClassName: q.Type + " principal"}, nil
}

func (s *stranger) LookupPrincipals(_ context.Context, pairs []schema.PrincipalPair) (schema.PrincipalsFound, error) {
	var out schema.PrincipalsFound
	for _, p := range pairs {
		if schema.HexID(p.PrincipalID) == one {
			out.Principals = append(out.Principals, schema.Principal{ID: one, SystemID: p.SystemID, ClassName: "group principal", Name: "one\nline"})
		}
	}
	return out, s.refusal
}

func text(v string) *string { return &v }

// What no manifest can declare is left out with its reason, and takes nothing
// else with it.
func TestLeftOut(t *testing.T) {
	yes, system, notACA := true, schema.SystemID(7), schema.Base64("not a certificate")
	member := schema.TemplateMember{SystemID: 1, PrincipalID: schema.DecimalID{5}, Rights: schema.RightNamed("READ"), MaxUsage: -1}
	late, none := member, member
	late.EndTime, none.Rights = schema.Stamp{7: 1}, 0
	for name, c := range map[string]struct {
		from stranger
		says string // why it is left out; empty where it is not
		has  string // what the manifest says
	}{
		"CAWithoutBody": {stranger{cas: []schema.TrustedCA{{}}}, "does not answer its certificate", ""},
		"NoCA":          {stranger{cas: []schema.TrustedCA{{Certificate: schema.Certificate{Certificate: &notACA}}}}, "not that of an X.509 CA", ""},
		"PeerUnknown":   {stranger{peers: []schema.TrustedServer{{}}}, "does not answer its system id", ""},
		"PeerNoBlob":    {stranger{peers: []schema.TrustedServer{{SystemID: &system}}}, "does not answer its trust blob", ""},
		"PeerNoName":    {stranger{peers: []schema.TrustedServer{{SystemID: &system, TrustBlob: &schema.TrustBlob{}}}}, "no friendly name", ""},
		"TrustOfNobody": {stranger{trusts: []schema.PrincipalTrust{{ID: one}}}, "does not answer its principal", ""},
		"TrustFlag":     {stranger{trusts: []schema.PrincipalTrust{{ID: one, PrincipalID: &schema.HexID{5}, TrustedServerSystemID: &system, FlagLabel: text("both")}}}, "spec.flag", ""},
		"TrustOddName":  {stranger{trusts: []schema.PrincipalTrust{{ID: one, PrincipalID: &one, TrustedServerSystemID: &system, FlagLabel: text("expose")}}}, "", "name: |-\n"},
		"TrustUntold": {stranger{refusal: &client.Error{Code: "ACCESS_DENIED"}, trusts: []schema.PrincipalTrust{{ID: one, PrincipalID: &one, TrustedServerSystemID: &system, FlagLabel: text("expose")}}},
			"", "id: \"0000000000000001\""},
		"BuiltIn":       {stranger{roles: []schema.Role{{ID: one, Name: "Administrator", BuiltIn: &yes}}}, "", ""},
		"RoleOddName":   {stranger{roles: []schema.Role{{ID: one, Name: " odd"}}}, "", "roleId: \"0000000000000001\""},
		"RoleOperation": {stranger{roles: []schema.Role{{ID: one, Name: "a", Operations: []schema.HexID{{0xab}}}}}, "", "- ab00000000000000"},
		"OddTemplate":   {stranger{templates: []schema.ACLTemplate{{ID: one, Name: "a\tb"}}}, "spec.templateName", ""},
		"SplitSecond":   {stranger{templates: []schema.ACLTemplate{{ID: one, Name: "a"}}, members: []schema.TemplateMember{late}}, "no time of a whole second", ""},
		"NoRights":      {stranger{templates: []schema.ACLTemplate{{ID: one, Name: "a"}}, members: []schema.TemplateMember{none}}, "spec.members[0].rights", ""},
		"OddDirectory":  {stranger{templates: []schema.ACLTemplate{{ID: one, Name: "a"}}, found: []schema.TemplatedDirectory{{ACLTemplateID: one, Path: "/a//b/"}}}, "", "templateName: a"},
		"Oneself": {stranger{templates: []schema.ACLTemplate{{ID: one, Name: "a"}}, members: []schema.TemplateMember{
			{SystemID: 1, PrincipalID: schema.DecimalID{9}, Rights: schema.RightNamed("READ"), MaxUsage: -1}, member}}, "", "principal: id/1/360287970189639680"},
	} {
		t.Run(name, func(t *testing.T) {
			c.from.roles = append(c.from.roles, schema.Role{ID: schema.HexID{2}, Name: "Bystander"})
			made, err := Collect(t.Context(), Options{Admin: &c.from, Officer: &c.from, Namespace: "default", KeyServer: "default"})
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := made.YAML(&b); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(b.String(), "Bystander") || !strings.Contains(b.String(), c.has) {
				t.Errorf("got %s, want %q in it", b.String(), c.has)
			}
			if (c.says == "") != (len(made.LeftOut) == 0) || (c.says != "" && !strings.Contains(made.LeftOut[0].Why, c.says)) {
				t.Errorf("left out: %+v, want %q", made.LeftOut, c.says)
			}
		})
	}
}

// A service that refuses to be read is not a service that holds nothing.
func TestCollectFails(t *testing.T) {
	from := &stranger{refusal: errors.New("down"), trusts: []schema.PrincipalTrust{{ID: one, PrincipalID: &one}}}
	if made, err := Collect(t.Context(), Options{Admin: from, Officer: from, Namespace: "default", KeyServer: "default"}); err == nil {
		t.Errorf("got %+v", made)
	}
}

// Names are labels, unique, and say as much of the title as a label can.
func TestUniqueNames(t *testing.T) {
	titled := func(titles ...string) (out []candidate) {
		for i, title := range titles {
			out = append(out, candidate{title: title, id: string(rune('a' + i))})
		}
		return out
	}
	got := unique("Role", titled("Signers", "signers", "Mail -- keys!", "Подписанты", "signers a", strings.Repeat("long ", 20), "-"))
	want := []string{"signers--a", "signers--b", "mail-keys", "role--d", "signers-a", strings.TrimSuffix(strings.Repeat("long-", 8), "-"), "role--g"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
