// Package keyservertest runs a key server in a Go test, and the manager of its custom resources on the test's control
// plane. Both run in the process of the test, and end with it. They need no container, and no fixed port.
//
// The key server is complete: HTTPS with a certificate of an internal CA, the embedded database in a temporary
// directory, and every route of the HTTP API. It hashes passwords at the lowest cost, so it is only for tests.
package keyservertest

import (
	"crypto/rand"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
)

// Server is a running key server. Concurrent tests may share it. If a method fails, it ends the test with t.Fatal.
type Server struct {
	server *testserver.Server
	admin  *client.Client
	ca     []byte
}

// Start runs a key server until the test ends. Its address is 127.0.0.1 with a free port.
func Start(t testing.TB) *Server {
	t.Helper()
	s := testserver.Start(t)
	return &Server{server: s, admin: clientOf(t, s, testserver.AdminName, testserver.AdminPassword), ca: s.CA(t)}
}

// URL returns the address of the HTTP API without its path: "https://127.0.0.1:" and the port.
func (s *Server) URL() string { return s.server.URL() }

// CA returns the CA certificate that clients of the key server have to trust, as PEM.
func (s *Server) CA() []byte { return slices.Clone(s.ca) }

// Admin returns a client of the first administrator, with the roles Administrator and Encryptor. Here, Administrator
// includes the operations of Security Officer.
func (s *Server) Admin() *client.Client { return s.admin }

// Principal is a principal that logs in with a password.
type Principal struct {
	schema.Principal
	Password string
	Client   *client.Client // logs in as the principal, at its first request
}

// CreatePrincipal creates a principal with a random password and with roles, such as "Encryptor", which may create and
// use keys. It fails the test if a role does not exist, or if the name is taken.
func (s *Server) CreatePrincipal(t testing.TB, name string, roles ...string) *Principal {
	t.Helper()
	ids := s.roleIDs(t, roles)
	password := rand.Text()
	saved, err := s.admin.CreatePasswordPrincipal(t.Context(), schema.CreatePasswordPrincipalRequest{
		Name: name, Password: schema.Secret(password), RoleIDs: ids,
	})
	if err != nil {
		t.Fatalf("create the principal %q: %v", name, err)
	}
	return &Principal{Principal: *saved.Principal, Password: password, Client: clientOf(t, s.server, name, password)}
}

func (s *Server) roleIDs(t testing.TB, names []string) []schema.HexID {
	t.Helper()
	list, err := s.admin.ListRoles(t.Context())
	if err != nil {
		t.Fatalf("list the roles: %v", err)
	}
	ids, known := make([]schema.HexID, len(names)), make([]string, len(list.Roles))
	for i, role := range list.Roles {
		known[i] = role.Name
	}
	for i, name := range names {
		at := slices.Index(known, name)
		if at < 0 {
			t.Fatalf("roles: the key server has no role %q; it has %s", name, strings.Join(known, ", "))
		}
		ids[i] = list.Roles[at].ID
	}
	return ids
}

// CreateKey creates a key for HMACs, which begins a key lineage. The principal becomes its owner, and needs the role
// Encryptor. Each user gets READ, the right to use the key, and needs the role Encryptor or Exchanger.
func (p *Principal) CreateKey(t testing.TB, users ...*Principal) schema.KeyMetadata {
	t.Helper()
	key, err := p.Client.MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	if err != nil {
		t.Fatalf("create a key as %q: %v", p.Name, err)
	}
	for _, user := range users {
		_, err := p.Client.GrantACL(t.Context(), schema.ACLChangeRequest{
			TTag: key.TTag, SystemID: user.SystemID, PrincipalID: user.PrincipalID, Rights: schema.RightNamed("READ"),
		})
		if err != nil {
			t.Fatalf("grant READ to %q: %v", user.Name, err)
		}
	}
	return key
}

// clientOf returns a client that closes its connections at the end of the test.
func clientOf(t testing.TB, s *testserver.Server, name, password string) *client.Client {
	t.Helper()
	c := s.Client(t, name, password)
	t.Cleanup(c.CloseIdleConnections)
	return c
}
