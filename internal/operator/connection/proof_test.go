package connection_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
)

// TestPasswordLoginsAreBound checks that password sessions are bound to a key if the URL for proofs is known. A key
// server that requires proofs accepts only such sessions.
func TestPasswordLoginsAreBound(t *testing.T) {
	const external = "https://keyserver.example:8443"
	for name, x := range map[string]struct {
		demand   session.Demand
		proofURL string
		bound    bool
		code     fault.Code
	}{
		"AskedFor":   {session.DemandAll, external, true, ""},
		"OfPeople":   {session.DemandPeople, external, true, ""},
		"NotAsked":   {session.DemandNone, external, true, ""},
		"NoURL":      {session.DemandNone, "", false, ""},
		"NoURLAsked": {session.DemandAll, "", false, fault.ProofRequired},
	} {
		t.Run(name, func(t *testing.T) {
			s := testserver.Start(t, func(c *server.Config) { c.ExternalURL, c.RequireProof = external, string(x.demand) })
			_, port, err := net.SplitHostPort(s.Address())
			if err != nil {
				t.Fatal(err)
			}
			api, err := connection.DialHTTP(connection.Endpoint{
				BaseURL: "https://localhost:" + port, ProofURL: x.proofURL, RootCAs: s.Pool(t), Username: testserver.AdminName,
				Password: func(context.Context) (string, error) { return testserver.AdminPassword, nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			got, err := api.GetCurrentSession(t.Context())
			var refused *client.Error
			if errors.As(err, &refused) != (x.code != "") || refused != nil && refused.Code != string(x.code) {
				t.Fatalf("got %v, want %q", err, x.code)
			}
			if err == nil && (got.BoundKey != nil) != x.bound {
				t.Errorf("the session is %+v", got)
			}
		})
	}
}
