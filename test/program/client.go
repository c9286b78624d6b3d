package program

import (
	"context"
	"net/http"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
)

// Connect is a transport, until the test ends, to the server of a data directory,
// at whatever address it is at that moment.
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

// Never is a number of retries: each request is answered or it is not.
const Never = -1

// Client logs in with a password over a transport. retries is how often a call is
// tried again.
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

// Admin is a client of the first administrator, whose password was drawn.
func (s *Server) Admin(t testing.TB, retries int) *client.Client {
	t.Helper()
	password, err := s.Password()
	if err != nil {
		t.Fatal(err)
	}
	return Client(t, Connect(t, s.DataDir, func() string { return s.Address }), "admin", password, retries)
}

// Trust makes one key server a peer of another, each as its administrator sees it:
// its CA is trusted, then its trust blob registered.
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
