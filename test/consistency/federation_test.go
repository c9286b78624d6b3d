package consistency

import (
	"path/filepath"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/program"
)

// Clients change the ACLs of one server's keys and use the keys, through that server and through its peer. The owner of
// the keys decides every request, so that a response is never stale: the bound is 0.
func TestTwoServersThatTrustEachOther(t *testing.T) {
	t.Parallel() // it mostly waits
	asking, owning := federated(t, "2"), federated(t, "3")
	there, here := connectAdmin(t, asking, asking), connectAdmin(t, owning, owning)
	program.Trust(t, there, here)
	program.Trust(t, here, there)
	ctx := t.Context()
	w := &world{owners: []*client.Client{here, there}}
	made := mint(t, here)
	local, foreign := makeUser(t, here), makeUser(t, there)
	w.addUsers(t, owning, w.addEntries(local, made))
	w.addUsers(t, asking, w.addEntries(foreign, made))

	// The administrator of the other server is another owner of the keys.
	session, err := there.GetCurrentSession(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range made {
		_, err := here.GrantACL(ctx, schema.ACLChangeRequest{
			TTag: key, SystemID: session.Principal.SystemID, PrincipalID: session.Principal.PrincipalID, Rights: schema.Rights(keyserver.Owner),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []schema.HexID{session.Principal.ID, schema.HexID(foreign.PrincipalID)} {
		_, err := there.CreatePrincipalTrust(ctx, schema.CreatePrincipalTrustRequest{PrincipalID: id, TrustedServerSystemID: 3, Flag: "expose"})
		if err != nil {
			t.Fatal(err)
		}
	}
	check(t, w, 0, nil)
}

// federated starts a server that listens for peers.
func federated(t *testing.T, system string) *program.Server {
	t.Helper()
	host := "127.0.0." + system
	return serve(t, []string{"--system-id", system, "--server-name", host, "--external-listen", host + ":0"}, filepath.Join(t.TempDir(), "data"))
}
