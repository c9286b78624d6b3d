package enginetest

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/trust"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// External address of the fixture.
const (
	ServerName   = "test.example"
	ExternalPort = 9443
)

// Hosts maps host names to addresses, for tests. An address resolves to itself.
type Hosts map[string]string

// LookupNetIP implements trust.Resolver.
func (h Hosts) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	text, ok := h[host]
	if !ok {
		text = host
	}
	var found []netip.Addr
	for word := range strings.FieldsSeq(text) {
		a, err := netip.ParseAddr(word)
		if err != nil {
			return nil, errors.New("no such host")
		}
		found = append(found, a)
	}
	return found, nil
}

// self describes the host of the fixture: a loopback address and another address, for IPv4 and IPv6.
func (f *Fixture) self() trust.Self {
	f.Hosts = Hosts{}
	return trust.Self{
		ServerName: ServerName, Port: ExternalPort, Resolver: f.Hosts,
		Certificate: func(context.Context) *x509.Certificate { return f.Prepared.Server.Certificate },
		Addresses: func() ([]netip.Addr, error) {
			var own []netip.Addr
			for _, a := range []string{"127.0.0.1", "::1", "192.0.2.1", "2001:db8::1"} {
				own = append(own, netip.MustParseAddr(a))
			}
			return own, nil
		},
	}
}

// PeerSystem is the system id of the peers that PeerOf returns.
const PeerSystem = 7

// PeerOf returns a new peer with a certificate issued by ca. The peer is not registered.
func (f *Fixture) PeerOf(t testing.TB, ca pki.Identity, subject string) keyserver.NewTrustedServer {
	t.Helper()
	return f.PeerWithKey(t, ca, subject, nil)
}

// PeerWithKey is PeerOf for a given key; nil means a new key.
func (f *Fixture) PeerWithKey(t testing.TB, ca pki.Identity, subject string, key *ecdsa.PrivateKey) keyserver.NewTrustedServer {
	t.Helper()
	leaf, err := ca.IssueServer(subject, nil, key, f.Clock.Now(), rand.Reader)
	fatal(t, err)
	chain, err := pki.EncodeChain(leaf.Certificate, ca.Certificate)
	fatal(t, err)
	f.Hosts["peer.example"] = "192.0.2.7 2001:db8::7"
	return keyserver.NewTrustedServer{
		Blob:         keyserver.TrustBlob{System: PeerSystem, ServerName: "peer.example", Port: 9443, Chain: chain},
		FriendlyName: "the other one",
	}
}

// TrustedPeer returns a new peer, and adds its CA to the trusted CAs.
func (f *Fixture) TrustedPeer(t testing.TB) keyserver.NewTrustedServer {
	t.Helper()
	ca, err := pki.NewCA("CA of the peer", f.Clock.Now(), rand.Reader)
	fatal(t, err)
	_, err = f.AddTrustedCA(context.Background(), f.Admin, ca.Certificate.Raw)
	fatal(t, err)
	return f.PeerOf(t, ca, "peer")
}

// CallOf returns the caller for a request that the registered peer sends for one of its principals.
func CallOf(name, key string, groups ...uint64) keyserver.Caller {
	by := keyserver.Caller{
		Principal: keyserver.PrincipalRef{System: PeerSystem, ID: values.IDFromUint64(70)}, Name: name, Type: keyserver.PasswordPrincipal,
		Kind: keyserver.PeerSession, RequestID: "from the peer", Peer: &keyserver.PeerCall{System: PeerSystem, Key: sha256.Sum256([]byte(key))},
	}
	for _, g := range groups {
		by.Peer.Groups = append(by.Peer.Groups, keyserver.PrincipalRef{System: PeerSystem, ID: values.IDFromUint64(g)})
	}
	return by
}
