package goclient

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha512"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
)

// Every call of the client works with the real service: it accepts the requests, and the
// client decodes the responses.
func TestAgainstTheRealService(t *testing.T) {
	server := testserver.Start(t)
	ctx := t.Context()
	admin := server.Client(t, testserver.AdminName, testserver.AdminPassword)

	if h, err := admin.GetHealth(ctx); err != nil || h.Status != "ok" {
		t.Fatalf("health: %+v, %v", h, err)
	}
	if r, err := admin.GetReadiness(ctx); err != nil || !r.Ready || len(r.Parts) == 0 {
		t.Fatalf("ready: %+v, %v", r, err)
	}
	if v, err := admin.GetVersion(ctx); err != nil || v.Version == "" {
		t.Fatalf("version: %+v, %v", v, err)
	}
	self, err := admin.GetCurrentSession(ctx)
	if err != nil || self.Principal.Name != testserver.AdminName {
		t.Fatalf("session: %+v, %v", self, err)
	}
	if p, err := admin.GetPrincipal(ctx, schema.ByID{ID: self.Principal.ID}); err != nil || p.Name != testserver.AdminName {
		t.Fatalf("principal: %+v, %v", p, err)
	}

	role := roleForKeys(ctx, t, admin)
	user, err := admin.CreatePasswordPrincipal(ctx, schema.CreatePasswordPrincipalRequest{
		Name: "keeper", Password: "a password of some length", RoleIDs: []schema.HexID{role},
	})
	if err != nil || !user.Saved {
		t.Fatalf("principal: %+v, %v", user, err)
	}
	useKeys(ctx, t, server.Client(t, "keeper", "a password of some length"), self)

	renamed := "renamed"
	if r, err := admin.UpdateRole(ctx, schema.UpdateRoleRequest{ID: role, Name: &renamed}); err != nil || !r.Saved || r.Role.Name != renamed {
		t.Errorf("update: %+v, %v", r, err)
	}
	if r, err := admin.DeleteRole(ctx, schema.ByID{ID: role}); err != nil || !r.Gone {
		t.Errorf("delete: %+v, %v", r, err)
	}
	if _, err := admin.DeleteRole(ctx, schema.ByID{ID: role}); !client.IsCode(err, "NOT_FOUND") || client.IsUnsupported(err) {
		t.Errorf("delete twice: %v", err)
	}
	if page, err := admin.ListChanges(ctx, schema.ChangesQuery{Wait: new(1)}); err != nil || page.Cursor == 0 {
		t.Errorf("changes: %+v, %v", page, err)
	}
	limit := 5
	if page, err := admin.ListAuditEntries(ctx, schema.AuditQuery{Limit: &limit, Since: time.Now().Add(-time.Hour)}); err != nil || len(page.Entries) != limit || page.Next == nil {
		t.Errorf("audit: %+v, %v", page, err)
	}
	if list, err := admin.ListTrustedCAs(ctx, schema.TrustedCAsQuery{}); err != nil || list.Count != len(list.TrustedCAs) {
		t.Errorf("trusted CAs: %+v, %v", list, err)
	}
	if _, err := admin.AddTrustedCA(ctx, schema.AddTrustedCARequest{Certificate: []byte("not a certificate")}); !client.IsCode(err, "BAD_REQUEST") {
		t.Errorf("add: %v", err)
	}
	if _, err := admin.RemoveTrustedCA(ctx, schema.RemoveTrustedCARequest{CertificateID: schema.Base64ID{7: 1}}); !client.IsCode(err, "NOT_TRUSTED") || client.IsUnsupported(err) {
		t.Errorf("remove: %v", err)
	}
	if err := admin.Logout(ctx); err != nil {
		t.Errorf("logout: %v", err)
	}
	if _, err := admin.ListRoles(ctx); err != nil {
		t.Errorf("after a logout the next call logs in again: %v", err)
	}
}

// roleForKeys creates a role with the operations on keys.
func roleForKeys(ctx context.Context, t *testing.T, admin *client.Client) schema.HexID {
	t.Helper()
	catalogue, err := admin.ListOperations(ctx)
	if err != nil || catalogue.Count == 0 {
		t.Fatalf("operations: %+v, %v", catalogue, err)
	}
	var ids []schema.HexID
	for _, op := range catalogue.Operations {
		if op.Duty == "key use" {
			ids = append(ids, op.ID)
		}
	}
	made, err := admin.CreateRole(ctx, schema.CreateRoleRequest{Name: "Keeper", Operations: ids})
	if err != nil || !made.Saved || len(made.Role.Operations) != len(ids) {
		t.Fatalf("role: %+v, %v", made, err)
	}
	if _, err := admin.CreateRole(ctx, schema.CreateRoleRequest{Name: "Keeper", Operations: ids}); !client.IsCode(err, "ALREADY_EXISTS") {
		t.Errorf("the same name again: %v", err)
	}
	return made.ID
}

func useKeys(ctx context.Context, t *testing.T, keeper *client.Client, other schema.Session) {
	t.Helper()
	material := schema.Base64("some key material")
	key, err := keeper.MintKey(ctx, schema.MintKeyRequest{Algorithm: "HMAC-SHA384", Material: &material})
	if err != nil || *key.KeyBytes != len(material) {
		t.Fatalf("mint: %+v, %v", key, err)
	}
	for _, n := range []int{0, 1, 100, 1 << 20} {
		message := bytes.Repeat([]byte("m"), n)
		mac := hmac.New(sha512.New384, material)
		mac.Write(message)
		got, err := keeper.HMAC(ctx, key.TTag, bytes.NewReader(message))
		if err != nil || !bytes.Equal(got.MAC, mac.Sum(nil)) {
			t.Errorf("HMAC of %d bytes: %+v, %v", n, got, err)
		}
	}
	if _, err := keeper.HMAC(ctx, key.TTag, io.LimitReader(endless{}, 16<<20+1)); !client.IsCode(err, "BAD_REQUEST") {
		t.Errorf("a message that is too long: %v", err)
	}
	if g, err := keeper.AuthorizeKey(ctx, schema.AuthorizeKeyRequest{TTag: key.TTag, Filename: "a file"}); err != nil || !g.Authorized || !g.FilenameAudited {
		t.Errorf("authorize: %+v, %v", g, err)
	}
	// By contract 7.6, only transport principals get metadata.
	if _, err := keeper.GetKey(ctx, schema.KeyRequest{TTag: key.TTag}); !client.IsCode(err, "ACCESS_DENIED") {
		t.Errorf("metadata: %v", err)
	}
	change := schema.ACLChangeRequest{TTag: key.TTag, SystemID: other.Principal.SystemID, PrincipalID: other.Principal.PrincipalID, Rights: 2}
	if _, err := keeper.UpdateACL(ctx, change); !client.IsCode(err, "ACL_NOT_FOUND") {
		t.Errorf("amend without an entry: %v", err)
	}
	if r, err := keeper.GrantACL(ctx, change); err != nil || !r.Verified || !r.Entry.Rights.Has(3) {
		t.Errorf("grant: %+v, %v", r, err)
	}
	change.Rights = 1
	if r, err := keeper.UpdateACL(ctx, change); err != nil || !r.Verified || r.Entry.Rights != 1 {
		t.Errorf("amend: %+v, %v", r, err)
	}
	if r, err := keeper.RevokeACL(ctx, schema.ACLRevokeRequest{TTag: key.TTag, SystemID: change.SystemID, PrincipalID: change.PrincipalID}); err != nil || r.Entry != nil {
		t.Errorf("revoke: %+v, %v", r, err)
	}
	if r, err := keeper.GetACL(ctx, schema.KeyRequest{TTag: key.TTag}); err != nil || r.ACL.EntryCount != 1 {
		t.Errorf("list: %+v, %v", r, err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestWrongPassword(t *testing.T) {
	server := testserver.Start(t)
	_, err := server.Client(t, testserver.AdminName, "a wrong password").ListRoles(t.Context())
	if !client.IsCode(err, "INVALID_CREDENTIALS") || strings.Contains(err.Error(), "a wrong password") {
		t.Fatalf("got %v", err)
	}
}

// A client works after a restart of its service. Calls during the restart return "unavailable".
func TestRestart(t *testing.T) {
	server := testserver.Start(t)
	c := server.Client(t, testserver.AdminName, testserver.AdminPassword)
	if _, err := c.ListRoles(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Stop(t)
	if _, err := c.ListRoles(t.Context()); !client.IsUnavailable(err) {
		t.Fatalf("stopped: %v", err)
	}
	server.Restart(t)
	if _, err := c.ListRoles(t.Context()); err != nil {
		t.Fatalf("started again: %v", err)
	}
}
