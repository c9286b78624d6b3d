// Package peer connects key servers: gRPC over mutual TLS on the external listener. A Gate accepts registered peers, a
// Server executes their calls, and a Client calls peers. Only the certificate identifies the other side. It must have
// the public key in the record of the trusted server, and its chain must lead to a CA that is trusted at that time. The
// implementation of keyserver.Federated authorizes the operations.
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

// Registry provides the records of peers, the trusted CAs, and the revocations.
type Registry interface {
	TrustedCAs(ctx context.Context) ([]keyserver.Certificate, error)
	TrustedServers(ctx context.Context) ([]keyserver.TrustedServer, error)
	// PeerAuthorities returns the CAs that were learned from peers.
	PeerAuthorities(ctx context.Context) ([]keyserver.PeerAuthority, error)
	// LearnAuthorities stores CAs that were learned from the peer with the record of.
	LearnAuthorities(ctx context.Context, of keyserver.TrustedServer, learned []keyserver.PeerAuthority) error
	// Revoked applies the revocation policy of a trusted CA to a certificate that the CA signed. It returns why the
	// certificate is refused, or "" if it is accepted.
	Revoked(ctx context.Context, cert, issuer *x509.Certificate) (why string, err error)
}

// trust is the content of the registry at one time, parsed.
type trust struct {
	roots   *x509.CertPool
	cas     []*x509.Certificate // the certificates in roots
	servers []keyserver.TrustedServer
	byKey   map[string][]keyserver.TrustedServer // by the public key of the certificate in the record
	// successors are the CAs that were learned from each peer.
	successors map[keyserver.SystemID][]successor
}

func load(ctx context.Context, r Registry) (trust, error) {
	cas, err := r.TrustedCAs(ctx)
	if err != nil {
		return trust{}, err
	}
	t := trust{roots: x509.NewCertPool(), byKey: map[string][]keyserver.TrustedServer{}}
	for _, ca := range cas {
		if cert, err := x509.ParseCertificate(ca.DER); err == nil { // ignore a certificate that cannot be parsed
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
		if recorded, err := x509.ParseCertificate(s.Certificate.DER); err == nil { // an unreadable certificate identifies no peer
			key := string(recorded.RawSubjectPublicKeyInfo)
			t.byKey[key] = append(t.byKey[key], s)
		}
	}
	return t, nil
}

var errNoCertificate = errors.New("the other side sent no certificate")

// identify returns the registered peer whose record has the same public key as the first certificate of chain. If
// several records have the key, it fails. A renewed certificate of a peer has the same key. The chain must lead to a
// trusted CA, or to a CA that was learned from the peer. ways are the chains to such CAs.
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

// unreadError means that the registry could not be read. So it is unknown whether a certificate is revoked.
type unreadError struct{ cause error }

func (e *unreadError) Error() string {
	return "the revocation evidence could not be read: " + e.cause.Error()
}
func (e *unreadError) Unwrap() error { return e.cause }

// notRevoked returns nil if one of the chains has no revoked certificate. Otherwise it returns an error.
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

// revokedOn returns why a certificate of a chain is revoked, or "". It checks each certificate with every trusted CA
// that signed it. Another CA may have revoked the last certificate even if it is trusted itself.
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
