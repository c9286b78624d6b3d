package goclient

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
)

// CertificateCredentials needs a transport that the client creates itself, because the transport presents the
// certificate.
func TestCertificateCredentialsNeedTheClientsTransport(t *testing.T) {
	credentials := client.CertificateCredentials(func() (*tls.Certificate, error) { return &tls.Certificate{}, nil })
	_, err := client.New(client.Options{BaseURL: "https://keys.example", HTTPClient: &http.Client{}, Credentials: credentials})
	if err == nil || !strings.Contains(err.Error(), "HTTPClient") {
		t.Errorf("got %v", err)
	}
}

// Without a certificate, the key server reports what is missing. A certificate that cannot be read is an error of the
// client.
func TestCertificateCredentialsWithoutACertificate(t *testing.T) {
	server := testserver.Start(t)
	none := errors.New("the file is gone")
	for name, tc := range map[string]struct {
		answer func() (*tls.Certificate, error)
		check  func(error) bool
	}{
		"Empty": {func() (*tls.Certificate, error) { return &tls.Certificate{}, nil }, func(err error) bool { return client.IsCode(err, "INVALID_CREDENTIALS") }},
		"Error": {func() (*tls.Certificate, error) { return nil, none }, func(err error) bool { return errors.Is(err, none) }},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := client.New(client.Options{
				BaseURL: server.URL(), RootCAs: server.Pool(t), Credentials: client.CertificateCredentials(tc.answer), MaxRetries: -1,
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.GetCurrentSession(t.Context()); !tc.check(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestCertificateCredentialsDoNotPrintTheKey(t *testing.T) {
	const secret = "the key"
	c := client.CertificateCredentials(func() (*tls.Certificate, error) { return &tls.Certificate{PrivateKey: secret}, nil })
	if out := fmt.Sprintf("%v %+v %#v %s", c, c, c, c); strings.Contains(out, secret) {
		t.Error(out)
	}
}
