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

// Registry holds the records of peers and the list of trusted CAs, and knows
// what they have revoked.
type Registry interface {
	TrustedCAs(ctx context.Context) ([]keyserver.Certificate, error)
	TrustedServers(ctx context.Context) ([]keyserver.TrustedServer, error)
	// PeerAuthorities are what was learned of the authorities of peers.
	PeerAuthorities(ctx context.Context) ([]keyserver.PeerAuthority, error)
	// LearnAuthorities remembers authorities of the peer of a record.
	LearnAuthorities(ctx context.Context, of keyserver.TrustedServer, learned []keyserver.PeerAuthority) error
	// Revoked says why a certificate that a trusted CA signed is refused, by the
	// revocation policy and evidence of this moment; nothing where it may pass.
	Revoked(ctx context.Context, cert, issuer *x509.Certificate) (why string, err error)
}

// trust is what the registry says at one moment.
type trust struct {
	roots   *x509.CertPool
	cas     []*x509.Certificate // those of roots
	servers []keyserver.TrustedServer
	byKey   map[string][]keyserver.TrustedServer // by the public key of the recorded certificate
	// successors are the authorities that were learned from each peer.
	successors map[keyserver.SystemID][]successor
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
			t.cas = append(t.cas, cert)
		}
	}
	if t.servers, err = r.TrustedServers(ctx); err != nil {
		return trust{}, err
	}
	learned, err := r.PeerAuthorities(ctx)
	if err != nil {
		return trust{}, err
	}
	t.successors = successors(learned, t.cas)
	for _, s := range t.servers {
		if recorded, err := x509.ParseCertificate(s.Certificate.DER); err == nil { // what does not parse is nobody's
			key := string(recorded.RawSubjectPublicKeyInfo)
			t.byKey[key] = append(t.byKey[key], s)
		}
	}
	return t, nil
}

var errNoCertificate = errors.New("the other side sent no certificate")

// identify answers whose certificate the first of a chain is: that of the one
// registered peer whose record has the same public key. The key server issues
// its certificate anew under the same key, so a later certificate is the
// peer's as well; the chain has to lead to a trusted CA in any case. It also
// answers the ways in which it does. An authority that was learned from the peer
// counts like one of the list.
func (t trust) identify(chain []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) (who keyserver.TrustedServer, ways [][]*x509.Certificate, err error) {
	if len(chain) == 0 {
		return who, nil, errNoCertificate
	}
	found := t.byKey[string(chain[0].RawSubjectPublicKeyInfo)]
	switch len(found) {
	case 1:
	case 0:
		return who, nil, fmt.Errorf("no registered peer has the key of the certificate of %s", chain[0].Subject)
	default:
		return who, nil, fmt.Errorf("%d registered peers have the key of the certificate of %s", len(found), chain[0].Subject)
	}
	if ways, err = t.ways(found[0], chain[0], chain[1:], usage, now); err != nil {
		err = shutOut(found[0], chain[0], err)
	}
	return found[0], ways, err
}

// unreadError is that the registry could not say whether a certificate is
// revoked.
type unreadError struct{ cause error }

func (e *unreadError) Error() string {
	return "the revocation evidence could not be read: " + e.cause.Error()
}
func (e *unreadError) Unwrap() error { return e.cause }

// notRevoked refuses a certificate that leads to a trusted CA in no way in
// which nothing is revoked.
func (t trust) notRevoked(ctx context.Context, r Registry, ways [][]*x509.Certificate) error {
	var refusal error
	for _, way := range ways {
		why, err := t.revokedOn(ctx, r, way)
		if err != nil {
			return &unreadError{err}
		}
		if why == "" {
			return nil
		}
		refusal = errors.New(why)
	}
	return refusal
}

// revokedOn asks about each certificate on a way every trusted CA that signed
// it: the one at its end may be trusted by itself and revoked by another one.
func (t trust) revokedOn(ctx context.Context, r Registry, way []*x509.Certificate) (why string, err error) {
	for _, cert := range way {
		for _, ca := range t.cas {
			if !bytes.Equal(cert.RawIssuer, ca.RawSubject) || cert.CheckSignatureFrom(ca) != nil {
				continue
			}
			if why, err = r.Revoked(ctx, cert, ca); why != "" || err != nil {
				return why, err
			}
		}
	}
	return "", nil
}
