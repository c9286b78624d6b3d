package peer

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// A peer replaces its CA (certificate authority) before the CA expires, and announces the next CA itself. With its
// certificate, it sends the next CA and a link. The link is a certificate for the next CA that a CA trusted here has
// signed. A CA that is learned in this way counts only for that peer. The peer must still have the same key. When the
// trusted CA behind the link is removed, the learned CA no longer counts either.

// maxQueuedChains is the maximum number of chains that wait to be checked for new CAs.
const maxQueuedChains = 16

// successor is a learned CA of a peer that is accepted now, with its links.
type successor struct {
	keyserver.PeerAuthority
	parsed *x509.Certificate
	linked []*x509.Certificate
}

// successors returns the learned CAs of each peer, if their anchors, the CAs that vouched for them, are still trusted.
func successors(learned []keyserver.PeerAuthority, trusted []*x509.Certificate) map[keyserver.SystemID][]successor {
	all := map[keyserver.SystemID][]successor{}
	for _, a := range learned {
		if !slices.ContainsFunc(trusted, func(ca *x509.Certificate) bool { return keyserver.DigestOf(ca.Raw) == a.Anchor }) {
			continue
		}
		s := successor{PeerAuthority: a}
		var err error
		if s.parsed, err = x509.ParseCertificate(a.Certificate); err != nil {
			continue // ignore a certificate that cannot be parsed
		}
		for _, der := range a.Links {
			link, parseErr := x509.ParseCertificate(der)
			if err = parseErr; err != nil {
				break
			}
			s.linked = append(s.linked, link)
		}
		if err == nil {
			all[a.System] = append(all[a.System], s)
		}
	}
	return all
}

// ways returns the chains from a peer's certificate to a trusted CA. If there are none, it returns the chains to a
// learned CA. A chain to a learned CA also has the CA's links, so that a revocation of a link is detected.
func (t trust) ways(who keyserver.TrustedServer, cert *x509.Certificate, between []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) ([][]*x509.Certificate, error) {
	o := x509.VerifyOptions{Roots: t.roots, Intermediates: poolOf(between), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}}
	ways, err := cert.Verify(o)
	known := t.successors[who.System]
	if err == nil || len(known) == 0 {
		return ways, err
	}
	var own []*x509.Certificate
	for _, s := range known {
		own = append(own, s.parsed)
	}
	o.Roots = poolOf(own)
	found, ownErr := cert.Verify(o)
	if ownErr != nil {
		return nil, err
	}
	for i, way := range found {
		at := slices.IndexFunc(known, func(s successor) bool { return s.parsed.Equal(way[len(way)-1]) })
		found[i] = append(slices.Clone(way), known[at].linked...)
	}
	return found, nil
}

// shutOut returns the error for a peer whose certificate does not lead to a trusted CA. The error says how to correct
// that.
func shutOut(who keyserver.TrustedServer, cert *x509.Certificate, err error) error {
	return fmt.Errorf("the certificate of the peer %d does not lead to a trusted CA: %w; if %s is its new CA, trust it (POST /api/trusted-cas) "+
		"and register the peer again with replace (POST /api/trusted-servers) and its trust blob (GET /api/trust/local-info on the peer)",
		who.System, err, pki.SlashName(cert.Issuer))
}

// newAuthorities returns the new CAs in a peer's chain: those that are not known, and that have a link from a trusted
// CA.
func (t trust) newAuthorities(ctx context.Context, r Registry, who keyserver.TrustedServer, chain []*x509.Certificate, now time.Time) ([]keyserver.PeerAuthority, error) {
	var learned []keyserver.PeerAuthority
	for _, ca := range chain[1:] {
		if t.knows(who.System, ca) || !selfSigned(ca) || !now.Before(ca.NotAfter) || pki.CheckStrength(ca) != nil {
			continue
		}
		for _, link := range chain[1:] {
			if !leadsTo(link, ca) {
				continue
			}
			ways, err := t.ways(who, link, chain[1:], x509.ExtKeyUsageAny, now)
			if err != nil {
				continue
			}
			if refusal := t.notRevoked(ctx, r, ways); refusal != nil {
				return nil, refusal
			}
			if a, ok := t.newAuthority(who, ca, ways[0]); ok {
				a.LearnedAt = now
				learned = append(learned, a)
				break
			}
		}
	}
	return learned, nil
}

// newAuthority returns the record of a new CA, with the certificates on the way from its link to a trusted or learned
// CA. It returns false if way contains no such CA.
func (t trust) newAuthority(who keyserver.TrustedServer, ca *x509.Certificate, way []*x509.Certificate) (keyserver.PeerAuthority, bool) {
	a := keyserver.PeerAuthority{System: who.System, Certificate: ca.Raw}
	for _, c := range way {
		if slices.ContainsFunc(t.cas, c.Equal) {
			a.Anchor = keyserver.DigestOf(c.Raw)
			return a, true
		}
		for _, s := range t.successors[who.System] {
			if s.parsed.Equal(c) {
				a.Anchor, a.Links = s.Anchor, append(a.Links, s.Links...)
				return a, true
			}
		}
		a.Links = append(a.Links, c.Raw)
	}
	return a, false
}

// knows reports whether a CA is already trusted, or learned from the peer.
func (t trust) knows(system keyserver.SystemID, ca *x509.Certificate) bool {
	return slices.ContainsFunc(t.cas, ca.Equal) ||
		slices.ContainsFunc(t.successors[system], func(s successor) bool { return s.parsed.Equal(ca) })
}

func selfSigned(ca *x509.Certificate) bool {
	return ca.BasicConstraintsValid && ca.IsCA && bytes.Equal(ca.RawIssuer, ca.RawSubject) && ca.CheckSignatureFrom(ca) == nil
}

// leadsTo reports whether link is a certificate with the name and key of ca that another CA issued.
func leadsTo(link, ca *x509.Certificate) bool {
	return link.IsCA && bytes.Equal(link.RawSubject, ca.RawSubject) && bytes.Equal(link.RawSubjectPublicKeyInfo, ca.RawSubjectPublicKeyInfo) &&
		!bytes.Equal(link.RawIssuer, ca.RawSubject)
}

func poolOf(list []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range list {
		pool.AddCert(c)
	}
	return pool
}

// peerChain is the chain of certificates that a peer sent. It is checked for new CAs after the handshake, because a new
// CA must be written to the database.
type peerChain struct {
	peer  keyserver.TrustedServer
	chain []*x509.Certificate
}

// queueChain queues the chain of a connection if it may contain a new CA. It never blocks: if the queue is full, it
// drops the chain, which the peer sends again with its next connection.
func (d *endpoint) queueChain(c *conn) {
	if len(c.chain) < 3 { // only a certificate and its issuer, no link
		return
	}
	select {
	case d.learnQueue <- peerChain{c.peer, c.chain}:
	default:
	}
}

// learn stores the new CAs of a peer's chain.
func (d *endpoint) learn(ctx context.Context, told peerChain) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	t, err := d.trust(ctx)
	if err != nil {
		return // the peer sends the chain again with its next connection
	}
	learned, err := t.newAuthorities(ctx, d.registry, told.peer, told.chain, d.clock())
	if err == nil && len(learned) > 0 {
		err = d.registry.LearnAuthorities(ctx, told.peer, learned)
	}
	if err != nil {
		d.logger.Warn("the next CA of a peer could not be stored; trying again with its next connection", "peer", told.peer.System, "error", err)
	}
}
