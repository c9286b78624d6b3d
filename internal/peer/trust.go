// Package peer carries operations between key servers: gRPC over mutual TLS on
// the external listener. A Gate lets registered peers in, a Server does what
// they ask, a Client asks them. Who the other side is, its certificate says and
// nothing else: it must hold the private key of the certificate in the record
// of the trusted server, and its chain must lead to a CA that is trusted at
// that moment. What may be asked is decided behind keyserver.Federated.
package peer

import (
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
	byKey   map[string][]keyserver.TrustedServer // by the public key of the recorded certificate
}

func load(ctx context.Context, r Registry) (trust, error) {
	cas, err := r.TrustedCAs(ctx)
	if err != nil {
		return trust{}, err
	}
	t := trust{roots: x509.NewCertPool(), byKey: map[string][]keyserver.TrustedServer{}}
	for _, ca := range cas {
		if cert, err := x509.ParseCertificate(ca.DER); err == nil { // what does not parse vouches for nobody
			t.roots.AddCert(cert)
		}
	}
	if t.servers, err = r.TrustedServers(ctx); err != nil {
		return trust{}, err
	}
	for _, s := range t.servers {
		if recorded, err := x509.ParseCertificate(s.Certificate.DER); err == nil { // what does not parse is nobody's
			key := string(recorded.RawSubjectPublicKeyInfo)
			t.byKey[key] = append(t.byKey[key], s)
		}
	}
	return t, nil
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
	found := t.byKey[string(chain[0].RawSubjectPublicKeyInfo)]
	switch len(found) {
	case 1:
	case 0:
		return none, fmt.Errorf("no registered peer has the key of the certificate of %s", chain[0].Subject)
	default:
		return none, fmt.Errorf("%d registered peers have the key of the certificate of %s", len(found), chain[0].Subject)
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
	return found[0], nil
}
