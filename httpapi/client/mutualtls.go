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

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// CertificateCredentials log in as the transport principal for which the
// client certificate is enrolled. A session is bound to the certificate that it
// was opened with, so each has connections of its own. The function is asked for
// each of them; when it answers another certificate, the next call that needs a
// connection logs in with that one. Nothing between the client and the service may
// end the TLS connection.
func CertificateCredentials(certificate func() (*tls.Certificate, error)) Credentials {
	return certificateCredentials{certificate}
}

type certificateCredentials struct {
	certificate func() (*tls.Certificate, error)
}

func (certificateCredentials) Login(context.Context) (schema.LoginRequest, error) {
	return schema.LoginRequest{Method: schema.MethodCertificate}, nil
}

// errRenewed ends a handshake: there is another certificate than the one that the
// session is bound to. Nothing was sent.
var errRenewed = errors.New("the client certificate was replaced")

// over returns what carries one session: connections that all show the certificate
// there is now.
func (c certificateCredentials) over(base http.Client) (*http.Client, error) {
	first, err := c.read()
	if err != nil {
		return nil, err
	}
	transport := base.Transport.(*http.Transport).Clone() //nolint:errcheck // New has seen to it
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

// Format does not print the key that the function may hold.
func (certificateCredentials) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "client certificate")
}

// presentable refuses credentials whose certificate could not be shown.
func presentable(o Options) error {
	_, shows := o.Credentials.(certificateCredentials)
	if held, ok := o.Credentials.(heldSession); ok {
		shows = held.certificate != nil
	}
	if shows && o.HTTPClient != nil {
		return errors.New("set HTTPClient or CertificateCredentials, not both: the certificate belongs to the transport")
	}
	return nil
}
