package ca

import (
	"crypto/x509"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Authorities has the CAs of a key server at one time, ordered by generation.
type Authorities struct {
	Members []Member
	// Issuer is the active CA with its key.
	Issuer pki.Identity
}

// Trusted returns the certificates of the key server's own trusted CAs. The active CA comes first, because some clients
// read only the first certificate of a file.
func (l Authorities) Trusted() []*x509.Certificate {
	list := []*x509.Certificate{l.Issuer.Certificate}
	for _, m := range l.Members {
		if m.State != keyserver.AuthorityActive {
			list = append(list, m.Parsed)
		}
	}
	return list
}

// Begin returns the start of the active CA's validity.
func (l Authorities) Begin() time.Time { return l.Issuer.Certificate.NotBefore }

// End returns the end of the active CA's validity.
func (l Authorities) End() time.Time { return l.Issuer.Certificate.NotAfter }

// Path returns the certificates that a certificate of the active CA is sent with. For clients that trust an earlier CA,
// these are the links of the active CA. Without links, it is the active CA itself. Links and CA are not sent together,
// because that confuses libraries that try only one chain.
func (l Authorities) Path(now time.Time) []*x509.Certificate {
	if active, ok := find(l.Members, keyserver.AuthorityActive); ok {
		if links := current(active.Linked, now); len(links) > 0 {
			return links
		}
	}
	return []*x509.Certificate{l.Issuer.Certificate}
}

// PathForPeers returns the certificates that are sent to peers: the active CA, the prepared CA and their links. Thus
// peers learn the next CA before it issues certificates.
func (l Authorities) PathForPeers(now time.Time) []*x509.Certificate {
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

// Chain returns the certificates in the trust blob, with which this key server is registered at others: the active CA,
// its links, and the CAs that signed the links.
func (l Authorities) Chain(now time.Time) []*x509.Certificate {
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
