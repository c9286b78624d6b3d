// Package interop tests a real server with third-party clients.
package interop

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig/node"
)

// outcome is the result of one client and algorithm.
type outcome struct {
	Client, Algorithm string
	Login             int
	Bound             bool // bound to the thumbprint that the client computed
	Without           string
	HMAC              int
	Replayed          string
	Whole             int
}

// TestProofClients checks that DPoP clients from the npm registry bind a session and use it, and
// that a used proof is rejected.
func TestProofClients(t *testing.T) {
	dir := node.Install(t, "proof.mjs")
	s := testserver.Start(t)
	key, err := s.Admin(t).MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	if err != nil {
		t.Fatal(err)
	}
	out := node.Run(t, dir, []string{
		"NODE_EXTRA_CA_CERTS=" + s.CAFile(), "NODE_NO_WARNINGS=1", "KEYSERVER_URL=" + s.URL(), "KEYSERVER_LINK=" + base64.StdEncoding.EncodeToString([]byte(key.TTag)),
		"KEYSERVER_NAME=" + testserver.AdminName, "KEYSERVER_PASSWORD=" + testserver.AdminPassword,
	}, "node", "proof.mjs")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 14 {
		t.Errorf("%d clients and algorithms reported, want 14", len(lines))
	}
	for _, line := range lines {
		var got outcome
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		want := outcome{
			Client: got.Client, Algorithm: got.Algorithm, Login: 200, Bound: true,
			Without: "PROOF_REQUIRED", HMAC: 200, Replayed: "PROOF_REPLAYED", Whole: 200,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s with %s:\n%s", got.Client, got.Algorithm, diff)
		}
	}
}
