// Package peer carries operations between key servers: gRPC over mutual TLS on
// the external listener. A Gate lets registered peers in, a Server does what
// they ask, a Client asks them. Who the other side is, its certificate says and
// nothing else: it must hold the private key of the certificate in the record
// of the trusted server, and its chain must lead to a CA that is trusted at
// that moment. What may be asked is decided behind keyserver.Federated.
package peer

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Registry holds the records of peers and the list of trusted CAs.
type Registry interface {
	TrustedCAs(ctx context.Context) ([]keyserver.Certificate, error)
	TrustedServers(ctx context.Context) ([]keyserver.TrustedServer, error)
}

// trust is what the registry says at one moment.
type trust struct {
	roots   *x509.CertPool
	servers []keyserver.TrustedServer
}

func load(ctx context.Context, r Registry) (trust, error) {
	cas, err := r.TrustedCAs(ctx)
	if err != nil {
		return trust{}, err
	}
	t := trust{roots: x509.NewCertPool()}
	for _, ca := range cas {
		if cert, err := x509.ParseCertificate(ca.DER); err == nil { // what does not parse vouches for nobody
			t.roots.AddCert(cert)
		}
	}
	t.servers, err = r.TrustedServers(ctx)
	return t, err
}

var errNoCertificate = errors.New("the other side sent no certificate")

// identify answers whose certificate the first of the chain is: that of the one
// registered peer whose record has the same public key. The key server issues
// its certificate anew under the same key, so a later certificate is the
// peer's as well; the chain has to lead to a trusted CA in any case.
func (t trust) identify(chain []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) (keyserver.TrustedServer, error) {
	var none keyserver.TrustedServer
	if len(chain) == 0 {
		return none, errNoCertificate
	}
	intermediates := x509.NewCertPool()
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: t.roots, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage},
	})
	if err != nil {
		return none, err
	}
	var found []keyserver.TrustedServer
	for _, s := range t.servers {
		if sameKey(s.Certificate.DER, chain[0]) {
			found = append(found, s)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return none, fmt.Errorf("no registered peer has the key of the certificate of %s", chain[0].Subject)
	default:
		return none, fmt.Errorf("%d registered peers have the key of the certificate of %s", len(found), chain[0].Subject)
	}
}

// sameKey reports whether a recorded certificate is for the key of another.
func sameKey(der []byte, presented *x509.Certificate) bool {
	recorded, err := x509.ParseCertificate(der)
	return err == nil && bytes.Equal(recorded.RawSubjectPublicKeyInfo, presented.RawSubjectPublicKeyInfo)
}
