package rig

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net/http"
	"slices"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Approve approves a pending request as by, which must have the duty, in a session that is bound to a key.
func (s *Site) Approve(t testing.TB, by Credentials, asked Answer) {
	t.Helper()
	if err := s.TryToApprove(t, by, asked); err != nil {
		t.Fatalf("%s approves %s: %v", by.Name, asked.Raw, err)
	}
}

// TryToApprove is like Approve, but returns a refusal as an error.
func (s *Site) TryToApprove(t testing.TB, by Credentials, asked Answer) error {
	t.Helper()
	id, err := schema.ParseHexID(asked.Text(t, "approvalId"))
	if err != nil {
		t.Fatal(err)
	}
	decision := schema.ApprovalDecision{ID: id}
	if err := decision.Digest.UnmarshalText([]byte(asked.Text(t, "digest"))); err != nil {
		t.Fatal(err)
	}
	_, err = s.Bound(t, by).Approve(context.WithoutCancel(t.Context()), decision)
	return err
}

// Approved executes a request that needs an approval: session requests it, by approves it, and session executes
// it. It must succeed.
func (s *Site) Approved(t testing.TB, session string, by Credentials, method, path string, body any) Answer {
	t.Helper()
	wish := Object{"method": method, "path": path, "reason": "for a test"}
	if body != nil {
		wish["body"] = body
	}
	asked := s.OK(t, session, "POST", "/api/approvals", wish)
	s.Approve(t, by, asked)
	return s.OK(t, session, "POST", "/api/approvals/"+asked.Text(t, "approvalId")+"/execute", nil)
}

// Bound returns a client that binds its sessions to a key. Each call returns the same client.
func (s *Site) Bound(t testing.TB, who Credentials) *client.Client {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.clients[who.Name]; ok {
		return c
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{
		BaseURL: s.Base(), HTTPClient: &http.Client{Transport: s.HTTP.Transport}, ProofKey: key,
		Credentials: client.PasswordCredentials(who.Name, func(context.Context) (string, error) { return who.Password, nil }),
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.clients == nil {
		s.clients = map[string]*client.Client{}
	}
	s.clients[who.Name] = c
	return c
}

// GrantRolesByDuty grants roles to a principal in a split deployment. For each duty, a principal with the duty grants its
// roles, and a principal with another duty approves.
func (s *Site) GrantRolesByDuty(t testing.TB, principal, name string, roles ...keyserver.ID) {
	t.Helper()
	path := "/api/principals/" + principal + "/roles"
	first := s.withoutTrust(t, name, roles)
	if len(first) > 0 {
		s.Approved(t, s.AsAdmin(t), s.Officer, "PUT", path, Object{"roleIds": hex(first)})
	}
	if !slices.Equal(first, roles) {
		s.Approved(t, s.As(t, s.Officer.Name, s.Officer.Password), s.Administrator, "PUT", path, Object{"roleIds": hex(roles)})
	}
}
