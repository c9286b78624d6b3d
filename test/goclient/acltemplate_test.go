package goclient

import (
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
)

// The calls for templates, directories and the configuration work with the real service: it accepts the requests, and
// the client decodes the responses.
func TestTemplatesAgainstTheRealService(t *testing.T) {
	server := testserver.Start(t)
	ctx, admin := t.Context(), server.Admin(t)
	self, err := admin.GetCurrentSession(ctx)
	if err != nil {
		t.Fatal(err)
	}
	me := schema.TemplateMemberRequest{SystemID: self.Principal.SystemID, PrincipalID: self.Principal.PrincipalID}

	if _, err := admin.ListACLTemplateMembers(ctx, schema.ByID{ID: schema.HexID{4: 0xde, 5: 0xad, 6: 0xbe, 7: 0xef}}); !client.IsCode(err, "NOT_FOUND") || client.IsUnsupported(err) {
		t.Errorf("no such template: %v", err)
	}
	created, err := admin.CreateACLTemplate(ctx, schema.ACLTemplateRequest{Name: "name"})
	if err != nil || !created.Saved {
		t.Fatalf("create: %+v, %v", created, err)
	}
	id := created.ID
	if r, err := admin.RenameACLTemplate(ctx, schema.RenameACLTemplateRequest{ID: id, ACLTemplateRequest: schema.ACLTemplateRequest{Name: "renamed"}}); err != nil || !r.Saved || r.Template.Name != "renamed" {
		t.Errorf("rename: %+v, %v", r, err)
	}
	if list, err := admin.ListACLTemplates(ctx, schema.ACLTemplateQuery{}); err != nil || list.Count != 1 || !list.Templates[0].Writable {
		t.Errorf("list: %+v, %v", list, err)
	}
	if list, err := admin.ListACLTemplateMembers(ctx, schema.ByID{ID: id}); err != nil || list.Count != 1 || list.Members[0].PrincipalID != me.PrincipalID {
		t.Errorf("members: %+v, %v", list, err)
	}
	me.Rights = schema.Rights(2)
	if r, err := admin.SetACLTemplateMember(ctx, schema.SetACLTemplateMemberRequest{ID: id, TemplateMemberRequest: me}); err != nil || !r.Saved || !r.Member.Rights.Has(me.Rights) {
		t.Errorf("put: %+v, %v", r, err)
	}
	if _, err := admin.RemoveACLTemplateMember(ctx, schema.RemoveACLTemplateMemberRequest{ID: id, SystemID: me.SystemID, PrincipalID: me.PrincipalID}); !client.IsCode(err, "LAST_WRITER") {
		t.Errorf("remove: %v", err)
	}

	path := "/a b&c"
	made, err := admin.CreateTemplatedDirectory(ctx, schema.CreateTemplatedDirectoryRequest{Path: path, ACLTemplateID: created.ID})
	if err != nil || !made.Saved || made.Directory.Path != path+"/" {
		t.Fatalf("create a directory: %+v, %v", made, err)
	}
	for name, q := range map[string]schema.TemplatedDirectoryQuery{
		"all": {}, "path": {Path: []string{path, "/other"}}, "template": {ACLTemplateID: []schema.HexID{created.ID}},
	} {
		if list, err := admin.ListTemplatedDirectories(ctx, q); err != nil || len(list.Directories) != 1 || len(list.QueriedPaths) != len(q.Path) {
			t.Errorf("directories by %s: %+v, %v", name, list, err)
		}
	}
	if key, err := admin.MintKey(ctx, schema.MintKeyRequest{Algorithm: "AES-256", Path: &path}); err != nil || key.Detail == "" {
		t.Errorf("mint: %+v, %v", key, err)
	}
	if _, err := admin.DeleteACLTemplate(ctx, schema.ByID{ID: id}); !client.IsCode(err, "IN_USE") {
		t.Errorf("delete in use: %v", err)
	}
	if r, err := admin.DeleteTemplatedDirectory(ctx, schema.ByID{ID: made.ID}); err != nil || !r.Gone {
		t.Errorf("delete a directory: %+v, %v", r, err)
	}
	if r, err := admin.DeleteACLTemplate(ctx, schema.ByID{ID: id}); err != nil || !r.Gone {
		t.Errorf("delete: %+v, %v", r, err)
	}

	if c, err := admin.GetConfiguration(ctx, schema.ConfigRequest{XPath: "Database"}); err != nil || len(c.Nodes) != 1 || c.Nodes[0].Attrs["kind"] != "sqlite" || len(c.AllowList) == 0 {
		t.Errorf("configuration: %+v, %v", c, err)
	}
	if _, err := admin.GetConfiguration(ctx, schema.ConfigRequest{XPath: "Nothing"}); !client.IsCode(err, "NOT_FOUND") || client.IsUnsupported(err) {
		t.Errorf("no such part: %v", err)
	}
}
