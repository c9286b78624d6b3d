package export

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// foreignServer is a key server of another vendor. It reports less than this project's key server, or has content that no
// manifest can declare.
type foreignServer struct {
	API
	cas       []schema.TrustedCA
	peers     []schema.TrustedServer
	trusts    []schema.PrincipalTrust
	roles     []schema.Role
	templates []schema.ACLTemplate
	members   []schema.TemplateMember
	found     []schema.TemplatedDirectory
	called    string // name of the principal with id 1
	class     string // class name of every principal, if all have the same
	refusal   error  // error of the request that looks principals up
	owners    []schema.OwnerMark
}

var one = schema.HexID{0, 0, 0, 0, 0, 0, 0, 1}

func (s *foreignServer) ListTrustedCAs(context.Context, schema.TrustedCAsQuery) (schema.TrustedCAList, error) {
	return schema.TrustedCAList{TrustedCAs: s.cas}, nil
}

func (s *foreignServer) ListRevocationIssuers(context.Context) (schema.RevocationIssuerList, error) {
	return schema.RevocationIssuerList{}, nil
}

func (s *foreignServer) ListTrustedServers(context.Context, schema.TrustedServersQuery) (schema.TrustedServerList, error) {
	return schema.TrustedServerList{TrustedServers: s.peers}, nil
}

func (s *foreignServer) ListPrincipalTrusts(_ context.Context, q schema.PrincipalTrustsQuery) (schema.PrincipalTrustList, error) {
	rest := s.trusts[min(*q.Offset, len(s.trusts)):]
	return schema.PrincipalTrustList{PrincipalTrusts: rest[:min(*q.Limit, len(rest))]}, nil
}

func (s *foreignServer) ListOwners(context.Context, schema.OwnerQuery) (schema.OwnerList, error) {
	return schema.OwnerList{Owners: s.owners}, nil
}

func (s *foreignServer) ListKeys(context.Context, schema.KeyQuery) (schema.KeyListing, error) {
	return schema.KeyListing{}, nil
}

func (s *foreignServer) ListOperations(context.Context) (schema.OperationList, error) {
	return schema.OperationList{}, nil
}

func (s *foreignServer) ListRoles(context.Context) (schema.RoleList, error) {
	return schema.RoleList{Roles: s.roles}, nil
}

func (s *foreignServer) ListACLTemplates(context.Context, schema.ACLTemplateQuery) (schema.ACLTemplateList, error) {
	return schema.ACLTemplateList{Templates: s.templates}, nil
}

func (s *foreignServer) ListACLTemplateMembers(context.Context, schema.ByID) (schema.TemplateMemberList, error) {
	return schema.TemplateMemberList{Members: s.members}, nil
}

func (s *foreignServer) ListTemplatedDirectories(context.Context, schema.TemplatedDirectoryQuery) (schema.TemplatedDirectoryList, error) {
	return schema.TemplatedDirectoryList{Directories: s.found}, nil
}

func (s *foreignServer) GetCurrentSession(context.Context) (schema.Session, error) {
	return schema.Session{Principal: schema.SessionPrincipal{SystemID: 1, PrincipalID: schema.DecimalID{9}}}, nil
}

func (s *foreignServer) ListPrincipals(_ context.Context, q schema.PrincipalQuery) (schema.PrincipalPage, error) {
	return schema.PrincipalPage{Type: q.Type, ClassName: cmp.Or(s.class, q.Type+" principal")}, nil
}

func (s *foreignServer) LookUpPrincipals(_ context.Context, in schema.LookupPrincipalsRequest) (schema.PrincipalsFound, error) {
	var out schema.PrincipalsFound
	called := cmp.Or(s.called, "one\nline")
	for _, p := range in.Principals {
		if schema.HexID(p.PrincipalID) == one {
			out.Principals = append(out.Principals, schema.Principal{ID: one, SystemID: p.SystemID, ClassName: cmp.Or(s.class, "group principal"), Name: called})
		}
	}
	return out, s.refusal
}

// template returns a key server with one ACL template.
func template(name string, members ...schema.TemplateMember) foreignServer {
	return foreignServer{templates: []schema.ACLTemplate{{ID: one, Name: name}}, members: members}
}

// called sets the name of the principal with id 1.
func called(name string, s foreignServer) foreignServer {
	s.called = name
	return s
}

// TestLeftOut checks that content that no manifest can declare is left out with a reason, and that all other content is
// exported.
func TestLeftOut(t *testing.T) {
	yes, system, notACA := true, schema.SystemID(7), schema.Base64("not a certificate")
	blob, name, odd := schema.TrustBlob{System: 7, ServerName: "peer.example", Port: 9443, Chain: []byte{1, 2, 3}}, "A peer", "two\nlines"
	member := schema.TemplateMember{SystemID: 1, PrincipalID: schema.DecimalID{5}, Rights: schema.RightNamed("READ"), MaxUsage: -1}
	late, none := member, member
	late.EndTime, none.Rights = schema.Stamp{7: 1}, 0
	trusting := func(id schema.HexID, flag string) []schema.PrincipalTrust {
		return []schema.PrincipalTrust{{ID: one, PrincipalID: &id, TrustedServerSystemID: &system, FlagLabel: &flag}}
	}
	within := func(s foreignServer, paths ...string) foreignServer {
		for _, p := range paths {
			s.found = append(s.found, schema.TemplatedDirectory{ACLTemplateID: one, Path: p})
		}
		return s
	}
	self := schema.TemplateMember{SystemID: 1, PrincipalID: schema.DecimalID{9}, Rights: schema.RightNamed("WRITE"), MaxUsage: -1}
	full := []schema.TemplateMember{self}
	for i := range 255 {
		full = append(full, schema.TemplateMember{SystemID: 7, PrincipalID: schema.DecimalID{6: 1, 7: byte(i)}, Rights: schema.RightNamed("READ"), MaxUsage: -1})
	}
	splitEvil := schema.TemplateMember{SystemID: 1, PrincipalID: schema.DecimalID(one), Rights: schema.RightNamed("READ"), EndTime: schema.Stamp{7: 1}}
	oddlyNamed := schema.TemplateMember{SystemID: 1, PrincipalID: schema.DecimalID(one), Rights: schema.RightNamed("READ"), MaxUsage: -1}
	beyond := oddlyNamed
	binary.BigEndian.PutUint64(beyond.EndTime[:], 253402300800000)
	var many []string
	for i := range 129 {
		many = append(many, fmt.Sprintf("/many/%d/", i))
	}
	for name, c := range map[string]struct {
		from foreignServer
		left []string // patterns of the reported omissions
		has  string   // pattern that the manifest must match; empty if there is no manifest
		not  string   // pattern that the manifest does not match
	}{
		"CAWithoutBody": {from: foreignServer{cas: []schema.TrustedCA{{}}}, left: []string{"^left out: trusted CA .* does not return its certificate"}},
		"NoCA":          {from: foreignServer{cas: []schema.TrustedCA{{Certificate: schema.Certificate{Certificate: &notACA}}}}, left: []string{"^left out: .* not an X.509 CA certificate"}},
		"PeerUnknown":   {from: foreignServer{peers: []schema.TrustedServer{{}}}, left: []string{"^left out: .* does not return its system id"}},
		"PeerNoBlob":    {from: foreignServer{peers: []schema.TrustedServer{{SystemID: &system}}}, left: []string{"^left out: .* does not return its trust blob"}},
		"PeerNoName":    {from: foreignServer{peers: []schema.TrustedServer{{SystemID: &system, TrustBlob: &schema.TrustBlob{}}}}, left: []string{"^left out: .* no friendly name"}},
		"PeerOddDescription": {from: foreignServer{peers: []schema.TrustedServer{{SystemID: &system, TrustBlob: &blob, FriendlyName: &name, Description: &odd}}},
			left: []string{"^exported without its description: peer with the system id 7: spec.description: must not hold control"}, has: "friendlyName: A peer\n", not: "description"},
		"TrustOfNobody": {from: foreignServer{trusts: []schema.PrincipalTrust{{ID: one}}}, left: []string{"^left out: .* does not return its principal"}},
		"TrustFlag":     {from: foreignServer{trusts: trusting(schema.HexID{5}, "both")}, left: []string{"^left out: .* spec.flag"}},
		"TrustOddName":  {from: foreignServer{trusts: trusting(one, "expose")}, has: `name: \|-\n`},
		"TrustLongName": {from: foreignServer{trusts: trusting(one, "expose"), called: strings.Repeat("long", 200)}, has: `id: "0000000000000001"`, not: "type: group"},
		"TrustOneClass": {from: foreignServer{trusts: trusting(one, "expose"), called: "a", class: "principal"}, has: `id: "0000000000000001"`, not: "type: "},
		"TrustUntold":   {from: foreignServer{refusal: &client.Error{Code: "ACCESS_DENIED"}, trusts: trusting(one, "expose")}, has: `id: "0000000000000001"`},
		"BuiltIn":       {from: foreignServer{roles: []schema.Role{{ID: one, Name: "Administrator", BuiltIn: &yes}}}, not: "Administrator"},
		"RoleOddName": {from: foreignServer{roles: []schema.Role{{ID: one, Name: " odd"}}},
			left: []string{`^exported without its name: role " odd" \(id 0000000000000001\): spec.roleName: must not begin`}, has: `roleId: "0000000000000001"`, not: "roleName:  odd"},
		"RoleOperation": {from: foreignServer{roles: []schema.Role{{ID: one, Name: "a", Operations: []schema.HexID{{0xab}}}}}, has: "- ab00000000000000"},
		"OddTemplate":   {from: within(template("a\tb"), "/a/"), left: []string{"^left out: .* spec.templateName"}},
		"SplitSecond":   {from: template("a", late), left: []string{"^left out: .* is not a whole second"}},
		"EvilName":      {from: called("a\x1b[2J", template("a", splitEvil)), left: []string{`^left out: .* member "group/a\\x1b\[2J" is not a whole second`}},
		"Year10000":     {from: template("a", beyond), left: []string{"^left out: .* up to the year 9999"}},
		"FullTemplate":  {from: template("a", full...), has: `principal: id/7/510\n`, not: "id/1/"},
		"OddMember":     {from: template("a", oddlyNamed, member), has: "- principal: id/1/1\n(.|\n)*- principal: id/1/360287970189639680\n"},
		"OneselfInFull": {from: template("a", self, member), has: "- principal: id/1/648518346341351424\n"},
		"NoRights":      {from: within(template("a", none), "/a/"), left: []string{`^left out: .* spec.members\[0\].rights`}},
		"OddDirectory": {from: within(template("a"), "/a//b/"),
			left: []string{`^exported without its directories: ACL template "a" .* spec.directories\[0\]: must be the plain path`}, has: "templateName: a\n", not: "directories"},
		"ManyDirectories": {from: within(template("a"), many...),
			left: []string{`^exported without its directories: ACL template "a" .* spec.directories: .*128`}, has: "templateName: a\n", not: "directories"},
		"Oneself": {from: template("a", schema.TemplateMember{SystemID: 1, PrincipalID: schema.DecimalID{9}, Rights: schema.RightNamed("READ"), MaxUsage: -1}, member),
			has: "members:\n  - principal: id/1/360287970189639680\n    rights:\n    - READ\n  templateName"},
	} {
		t.Run(name, func(t *testing.T) {
			bystander := schema.Role{ID: schema.HexID{2}, Name: "Bystander"}
			c.from.roles = append(c.from.roles, bystander)
			made, err := Collect(t.Context(), Options{Admin: &c.from, Officer: &c.from, Namespace: "default", KeyServer: "default"})
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := made.YAML(&b); err != nil {
				t.Fatal(err)
			}
			objects := 1 // another object, which must be exported
			if c.has != "" {
				objects = 2
			}
			if len(made.Objects) != objects || !strings.Contains(b.String(), "Bystander") || !regexp.MustCompile(c.has).MatchString(b.String()) {
				t.Errorf("got %d objects, want %d and %q in them:\n%s", len(made.Objects), objects, c.has, b.String())
			}
			if c.not != "" && regexp.MustCompile(c.not).MatchString(b.String()) {
				t.Errorf("got %s, want no %q in it", b.String(), c.not)
			}
			if len(made.LeftOut) != len(c.left) {
				t.Fatalf("left out: %+v, want %q", made.LeftOut, c.left)
			}
			for i, l := range made.LeftOut {
				if !regexp.MustCompile(c.left[i]).MatchString(l.String()) {
					t.Errorf("left out: %q, want %q", l, c.left[i])
				}
			}
		})
	}
}

// TestOwners checks that the comment above an object names its owner and has only one line, even if the mark has
// several.
func TestOwners(t *testing.T) {
	for owner, want := range map[string]string{
		"c/default/Role/a":         `# owned by "c/default/Role/a", which created it`,
		"c/default/Role/a/Adopted": `# owned by "c/default/Role/a", which took it over`,
		"somebody\nkind: Role":     `# owned by "somebody\nkind: Role"`,
		"":                         "# no owner mark",
	} {
		from := &foreignServer{roles: []schema.Role{{ID: one, Name: "a"}}}
		if owner != "" {
			from.owners = []schema.OwnerMark{{Kind: "role", ID: one, Owner: owner}}
		}
		made, err := Collect(t.Context(), Options{Admin: from, Officer: from, Namespace: "default", KeyServer: "default"})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := made.YAML(&b); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(b.String(), "---\n"+want+"\napiVersion: ") {
			t.Errorf("of %q:\n%s", owner, b.String())
		}
	}
}

// TestCollectFails checks that an export fails if a read fails.
func TestCollectFails(t *testing.T) {
	from := &foreignServer{refusal: errors.New("down"), trusts: []schema.PrincipalTrust{{ID: one, PrincipalID: &one}}}
	if made, err := Collect(t.Context(), Options{Admin: from, Officer: from, Namespace: "default", KeyServer: "default"}); !errors.Is(err, from.refusal) {
		t.Errorf("got %+v, %v", made, err)
	}
}

// TestPagesOfTrusts checks that all pages of a list are read.
func TestPagesOfTrusts(t *testing.T) {
	from := &foreignServer{}
	system, flag := schema.SystemID(7), "expose"
	for i := range trustPage + 1 {
		id := schema.HexID{6: byte((i + 2) >> 8), 7: byte(i + 2)}
		from.trusts = append(from.trusts, schema.PrincipalTrust{ID: id, PrincipalID: &id, TrustedServerSystemID: &system, FlagLabel: &flag})
	}
	rows, err := (&exporter{Options: Options{Officer: from}}).trustRows(t.Context())
	if err != nil || len(rows) != trustPage+1 {
		t.Errorf("got %d, %v", len(rows), err)
	}
}

// TestUniqueNames checks that names are unique labels and contain as much of the title as fits.
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
