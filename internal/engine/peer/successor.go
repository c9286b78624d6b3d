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

// The authority of a peer is replaced in time, and the next one is told here by the
// peer itself: beside its certificate it shows the next authority, and a link by
// which one that is trusted here vouches for it. What was learned so counts for that
// peer alone, which is known by its key in any case, and only while the trusted CA
// from which it follows is in the list: whoever takes that one out shuts out what
// came after it, too.

// waitingLessons bounds what is to be remembered.
const waitingLessons = 16

// successor is an authority of a peer that counts.
type successor struct {
	keyserver.PeerAuthority
	parsed *x509.Certificate
	linked []*x509.Certificate
}

// successors are those of each peer whose anchors are trusted.
func successors(learned []keyserver.PeerAuthority, trusted []*x509.Certificate) map[keyserver.SystemID][]successor {
	all := map[keyserver.SystemID][]successor{}
	for _, a := range learned {
		if !slices.ContainsFunc(trusted, func(ca *x509.Certificate) bool { return keyserver.DigestOf(ca.Raw) == a.Anchor }) {
			continue
		}
		s := successor{PeerAuthority: a}
		var err error
		if s.parsed, err = x509.ParseCertificate(a.Certificate); err != nil {
			continue // what does not parse vouches for nobody
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

// ways answers how the certificate of a peer leads to what is trusted: to the list,
// or else to a successor. A way by a successor has its links as well, so that what
// their issuers have revoked counts.
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

// shutOut says what to do about a peer whose certificate leads to nothing.
func shutOut(who keyserver.TrustedServer, cert *x509.Certificate, err error) error {
	return fmt.Errorf("the certificate of the peer %d leads to no CA that is trusted: %w; if it has replaced its authority %s while this key server did not hear of it, "+
		"trust that one (POST /api/trusted-cas) and register the peer again with replace (POST /api/trusted-servers), as GET /api/trust/local-info there has it",
		who.System, err, pki.SlashName(cert.Issuer))
}

// lessons are the authorities of a peer that its chain shows, that were not known,
// and that what is trusted vouches for.
func (t trust) lessons(ctx context.Context, r Registry, who keyserver.TrustedServer, chain []*x509.Certificate, now time.Time) ([]keyserver.PeerAuthority, error) {
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
			if a, ok := t.lesson(who, ca, ways[0]); ok {
				a.LearnedAt = now
				learned = append(learned, a)
				break
			}
		}
	}
	return learned, nil
}

// lesson is an authority with the way from its link to what vouches for it.
func (t trust) lesson(who keyserver.TrustedServer, ca *x509.Certificate, way []*x509.Certificate) (keyserver.PeerAuthority, bool) {
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

// knows reports whether an authority needs no lesson.
func (t trust) knows(system keyserver.SystemID, ca *x509.Certificate) bool {
	return slices.ContainsFunc(t.cas, ca.Equal) ||
		slices.ContainsFunc(t.successors[system], func(s successor) bool { return s.parsed.Equal(ca) })
}

func selfSigned(ca *x509.Certificate) bool {
	return ca.BasicConstraintsValid && ca.IsCA && bytes.Equal(ca.RawIssuer, ca.RawSubject) && ca.CheckSignatureFrom(ca) == nil
}

// leadsTo reports whether a certificate is one of the same name and key by another
// authority.
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

// toldBy is what a connection showed: it is looked at for lessons once the handshake
// is over, because to remember one is to write.
type toldBy struct {
	peer  keyserver.TrustedServer
	chain []*x509.Certificate
}

// hear takes up what a connection showed, if anything in it is new. It never blocks:
// what is lost is shown again with the next connection.
func (d *endpoint) hear(c *conn) {
	if len(c.chain) < 3 { // a certificate and who issued it: no link
		return
	}
	select {
	case d.lessons <- toldBy{c.peer, c.chain}:
	default:
	}
}

// learn remembers what is new in what a peer showed.
func (d *endpoint) learn(ctx context.Context, told toldBy) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	t, err := d.trust(ctx)
	if err != nil {
		return // it is shown again
	}
	learned, err := t.lessons(ctx, d.registry, told.peer, told.chain, d.clock())
	if err == nil && len(learned) > 0 {
		err = d.registry.LearnAuthorities(ctx, told.peer, learned)
	}
	if err != nil {
		d.logger.Warn("the next authority of a peer could not be learned; trying again with its next connection", "peer", told.peer.System, "error", err)
	}
}
