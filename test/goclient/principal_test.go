package goclient

import (
	"errors"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
)

// Every call for principals and groups works with the real service. The client refuses an invalid id without a request,
// because the id would change the path.
func TestPrincipalsAgainstTheRealService(t *testing.T) {
	admin, ctx := testserver.Start(t).Admin(t), t.Context()
	ldap, err := admin.CreateLDAPPrincipal(ctx, schema.CreateLDAPPrincipalRequest{Name: "ann"})
	if err != nil || !ldap.Saved {
		t.Fatalf("ldap: %+v, %v", ldap, err)
	}
	xauth, err := admin.CreateXAuthPrincipal(ctx, schema.CreateXAuthPrincipalRequest{
		Name: "web", Issuer: "https://issuer.example", Subject: "web", Audiences: []string{"keyserver"},
	})
	if err != nil || xauth.Principal == nil || xauth.Principal.Issuer != "https://issuer.example" || len(xauth.Principal.Audiences) != 1 {
		t.Fatalf("xauth: %+v, %v", xauth, err)
	}
	group, err := admin.CreateGroup(ctx, schema.CreateGroupRequest{Name: "team"})
	if err != nil || !group.Saved {
		t.Fatalf("group: %+v, %v", group, err)
	}
	if r, err := admin.CreateGroup(ctx, schema.CreateGroupRequest{Name: "team"}); !client.IsCode(err, "ALREADY_EXISTS") {
		t.Errorf("group twice: %+v, %v", r, err)
	}
	ann, team := ldap.Principal.ID, group.Principal.ID

	limit, offset, yes := 1, 1, true
	if page, err := admin.ListPrincipals(ctx, schema.PrincipalQuery{Type: "ldap", Name: "a"}); err != nil || page.Count != 1 || page.Page.Pattern != "a%" {
		t.Errorf("list: %+v, %v", page, err)
	}
	if page, err := admin.ListPrincipals(ctx, schema.PrincipalQuery{Type: "ldap", Limit: &limit, Offset: &offset}); err != nil || page.Count != 0 || !page.Page.Applied {
		t.Errorf("page: %+v, %v", page, err)
	}
	pairs := []schema.PrincipalPair{{SystemID: 1, PrincipalID: xauth.Principal.PrincipalID}, {SystemID: 9, PrincipalID: xauth.Principal.PrincipalID}}
	if found, err := admin.LookUpPrincipals(ctx, schema.LookupPrincipalsRequest{Principals: pairs}); err != nil || len(found.Principals) != 1 || found.Requested != 2 {
		t.Errorf("lookup: %+v, %v", found, err)
	}
	if r, err := admin.UpdatePrincipalFlags(ctx, schema.UpdatePrincipalFlagsRequest{ID: ann, Disabled: &yes}); err != nil || !r.Saved || !r.After.Disabled {
		t.Errorf("flags: %+v, %v", r, err)
	}
	if r, err := admin.UpdatePrincipalFlags(ctx, schema.UpdatePrincipalFlagsRequest{ID: team, Disabled: &yes}); !client.IsCode(err, "NO_FLAG_WORD") {
		t.Errorf("flags of a group: %+v, %v", r, err)
	}
	if r, err := admin.UpdatePrincipalRoles(ctx, schema.UpdatePrincipalRolesRequest{ID: ann, RoleIDs: []schema.HexID{{7: 5}}}); err != nil || !r.Saved || len(r.Principal.RoleIDs) != 1 {
		t.Errorf("roles: %+v, %v", r, err)
	}
	for range 2 {
		if r, err := admin.AddGroupMember(ctx, schema.GroupMemberRequest{Group: team, Member: ann}); err != nil || !r.Saved {
			t.Errorf("add: %+v, %v", r, err)
		}
	}
	if list, err := admin.ListGroupMembers(ctx, schema.ListGroupMembersRequest{Group: team, Limit: &limit}); err != nil || list.Count != 1 {
		t.Errorf("members: %+v, %v", list, err)
	}
	if r, err := admin.RemoveGroupMember(ctx, schema.GroupMemberRequest{Group: team, Member: ann}); err != nil || !r.Gone {
		t.Errorf("remove: %+v, %v", r, err)
	}
	if _, err := admin.RemoveGroupMember(ctx, schema.GroupMemberRequest{Group: team, Member: ann}); !client.IsCode(err, "NOT_FOUND") || client.IsUnsupported(err) {
		t.Errorf("remove twice: %v", err)
	}

	for _, bad := range []schema.IssuerDigest{"", "..", "../roles", "AB"} {
		_, get := admin.GetRevocationPolicy(ctx, schema.ByDigest{Digest: bad})
		_, set := admin.SetRevocationPolicy(ctx, schema.SetRevocationPolicyRequest{Digest: bad, Mode: "off"})
		for what, err := range map[string]error{"get": get, "set": set} {
			var refused *client.Error
			if !errors.As(err, &refused) || refused.Code != "BAD_REQUEST" || refused.Status != 0 || !strings.HasPrefix(refused.Detail, "digest: must ") {
				t.Errorf("%s the policy of %q: %v", what, bad, err)
			}
		}
	}
}
