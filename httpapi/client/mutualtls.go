package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// CertificateCredentials log in as the transport principal for which the
// client certificate is enrolled. The function is asked for each connection,
// so that a renewed certificate is picked up. Nothing between the client and
// the service may end the TLS connection.
func CertificateCredentials(certificate func() (*tls.Certificate, error)) Credentials {
	return certificateCredentials{certificate}
}

type certificateCredentials struct {
	certificate func() (*tls.Certificate, error)
}

func (certificateCredentials) Login(context.Context) (schema.LoginRequest, error) {
	return schema.LoginRequest{Method: schema.MethodCertificate}, nil
}

// present is asked in a handshake (tls.Config.GetClientCertificate).
func (c certificateCredentials) present(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	cert, err := c.certificate()
	if err != nil {
		return nil, fmt.Errorf("read the client certificate: %w", err)
	}
	return cert, nil
}

// Format does not print the key that the function may hold.
func (certificateCredentials) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "client certificate")
}

// presenting gives a transport the certificate of the credentials, and returns
// what opens sessions: a connection of its own for each login, because a kept
// one goes on with the certificate that it was made with. nil where the
// credentials are of another kind.
func presenting(o Options, c *http.Client) (*http.Client, error) {
	credentials, ok := o.Credentials.(certificateCredentials)
	if !ok {
		return nil, nil
	}
	transport, ok := c.Transport.(*http.Transport)
	if !ok || o.HTTPClient != nil {
		return nil, errors.New("set HTTPClient or CertificateCredentials, not both: the certificate belongs to the transport")
	}
	transport.TLSClientConfig.GetClientCertificate = credentials.present
	alone := transport.Clone()
	alone.DisableKeepAlives = true
	logins := *c
	logins.Transport = alone
	return &logins, nil
}
