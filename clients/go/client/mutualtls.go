package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// CertificateCredentials logs in as the transport principal that the client certificate is enrolled for. A session is
// bound to its certificate, so each session has its own connections. The function is called for each connection. If it
// returns another certificate, the next call that needs a connection logs in with the new certificate. No proxy between
// client and service may terminate the TLS connection.
func CertificateCredentials(certificate func() (*tls.Certificate, error)) Credentials {
	return certificateCredentials{certificate}
}

type certificateCredentials struct {
	certificate func() (*tls.Certificate, error)
}

func (certificateCredentials) Login(context.Context) (schema.LoginRequest, error) {
	return schema.LoginRequest{Method: schema.MethodCertificate}, nil
}

// errRenewed ends a handshake because the certificate is not the one that the session is
// bound to. Nothing was sent.
var errRenewed = errors.New("the client certificate was replaced")

// over returns an HTTP client for one session. All connections of that client use the current certificate.
func (c certificateCredentials) over(base http.Client) (*http.Client, error) {
	first, err := c.read()
	if err != nil {
		return nil, err
	}
	transport := base.Transport.(*http.Transport).Clone() //nolint:errcheck // New has checked the type
	transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		now, err := c.read()
		if err == nil && !slices.EqualFunc(first.Certificate, now.Certificate, bytes.Equal) {
			err = errRenewed
		}
		return now, err
	}
	base.Transport = transport
	return &base, nil
}

func (c certificateCredentials) read() (*tls.Certificate, error) {
	cert, err := c.certificate()
	if err != nil {
		return nil, fmt.Errorf("read the client certificate: %w", err)
	}
	return cert, nil
}

// Format does not print the key that the function may contain.
func (certificateCredentials) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "client certificate")
}

// checkClientCertificate fails if the credentials need a certificate that the transport cannot send.
func checkClientCertificate(o Options) error {
	_, shows := o.Credentials.(certificateCredentials)
	if held, ok := o.Credentials.(heldSession); ok {
		shows = held.certificate != nil
	}
	if shows && o.HTTPClient != nil {
		return errors.New("set HTTPClient or CertificateCredentials, not both: the certificate belongs to the transport")
	}
	return nil
}
