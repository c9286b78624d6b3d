package ca

import (
	"crypto/x509"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Line is the authorities of a key server at one moment, by generation.
type Line struct {
	Members []Member
	// Issuer is the active one with its key.
	Issuer pki.Identity
}

// Trusted are the certificates that this key server trusts as its own: first the one
// that issues, because some read only the first of a file.
func (l Line) Trusted() []*x509.Certificate {
	list := []*x509.Certificate{l.Issuer.Certificate}
	for _, m := range l.Members {
		if m.State != keyserver.AuthorityActive {
			list = append(list, m.Parsed)
		}
	}
	return list
}

// Begin is when the active authority begins.
func (l Line) Begin() time.Time { return l.Issuer.Certificate.NotBefore }

// End is when the active authority ends.
func (l Line) End() time.Time { return l.Issuer.Certificate.NotAfter }

// Path is what a certificate of the active authority is shown with to clients: the
// links, for those who trust one before it, or the authority itself. Both would be
// too much for libraries that try one way only.
func (l Line) Path(now time.Time) []*x509.Certificate {
	if active, ok := find(l.Members, keyserver.AuthorityActive); ok {
		if links := current(active.Linked, now); len(links) > 0 {
			return links
		}
	}
	return []*x509.Certificate{l.Issuer.Certificate}
}

// PathForPeers is what peers are shown: every way to every authority, so that they
// learn the next one before it issues.
func (l Line) PathForPeers(now time.Time) []*x509.Certificate {
	path := []*x509.Certificate{l.Issuer.Certificate}
	for _, m := range l.Members {
		if m.State == keyserver.AuthorityPrepared {
			path = append(path, m.Parsed)
		}
	}
	for _, m := range l.Members {
		if m.State != keyserver.AuthorityRetiring {
			path = append(path, current(m.Linked, now)...)
		}
	}
	return unique(path)
}

// Chain is what the trust blob shows, for whoever registers this key server: the way
// to each authority that is trusted.
func (l Line) Chain(now time.Time) []*x509.Certificate {
	chain := []*x509.Certificate{l.Issuer.Certificate}
	known := l.Trusted()
	if active, ok := find(l.Members, keyserver.AuthorityActive); ok {
		for _, link := range current(active.Linked, now) {
			i := slices.IndexFunc(known, func(ca *x509.Certificate) bool { return link.CheckSignatureFrom(ca) == nil })
			if i >= 0 {
				chain = append(chain, link, known[i])
			}
		}
	}
	return unique(chain)
}

func current(links []*x509.Certificate, now time.Time) []*x509.Certificate {
	return slices.DeleteFunc(slices.Clone(links), func(c *x509.Certificate) bool { return !now.Before(c.NotAfter) })
}

func unique(list []*x509.Certificate) []*x509.Certificate {
	var kept []*x509.Certificate
	for _, c := range list {
		if !slices.ContainsFunc(kept, c.Equal) {
			kept = append(kept, c)
		}
	}
	return kept
}
