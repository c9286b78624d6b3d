package program

import (
	"context"
	"net/http"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
)

// Connect returns a transport to the server of a data directory until the test ends. Each new connection uses the
// current result of address.
func Connect(t testing.TB, dataDir string, address func() string) *http.Transport {
	t.Helper()
	roots, err := Roots(dataDir)
	if err != nil {
		t.Fatal(err)
	}
	transport := Transport(roots, address)
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// NoRetries is the number of retries for a client that does not repeat requests.
const NoRetries = -1

// Client returns a client that logs in with a password. retries is the maximum number of retries of a call.
func Client(t testing.TB, over http.RoundTripper, name, password string, retries int) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{
		BaseURL: BaseURL, HTTPClient: &http.Client{Transport: over}, MaxRetries: retries, Timeout: patience,
		Credentials: client.PasswordCredentials(name, func(context.Context) (string, error) { return password, nil }),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Admin returns a client of the first administrator, with the generated password.
func (s *Server) Admin(t testing.TB, retries int) *client.Client {
	t.Helper()
	password, err := s.Password()
	if err != nil {
		t.Fatal(err)
	}
	return Client(t, Connect(t, s.DataDir, func() string { return s.Address }), "admin", password, retries)
}

// Trust registers one key server as a peer of another. Both clients are administrators. It trusts the CA of the peer,
// then registers the trust blob of the peer.
func Trust(t testing.TB, at, peer *client.Client) {
	t.Helper()
	info, err := peer.GetLocalTrustInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	chain, err := pki.ParseChain(info.Chain)
	if err == nil {
		_, err = at.AddTrustedCA(t.Context(), schema.AddTrustedCARequest{Certificate: chain.Intermediates[0].Raw})
	}
	if err == nil {
		_, err = at.AddTrustedServer(t.Context(), schema.AddTrustedServerRequest{TrustBlob: *info.TrustBlob, FriendlyName: "peer"})
	}
	if err != nil {
		t.Fatal(err)
	}
}
