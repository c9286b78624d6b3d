package peer

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// revoke revokes the certificate of an identity, by its CA.
func (r *registry) revoke(i identity) {
	r.forget(func(r *registry) {
		r.revoked = map[string]string{named(i.own.Certificate, i.ca.Certificate): "it is revoked"}
	})
}

// subordinate returns a CA that another CA signed, with the given key or a new one.
func subordinate(t testing.TB, of pki.Identity, key pki.Identity) pki.Identity {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "subordinate CA"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, of.Certificate, key.Key.Public(), of.Key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return pki.Identity{Certificate: cert, Key: key.Key}
}

// TestRevokedCertificates checks that at least one chain to a trusted CA must have no revoked certificate.
func TestRevokedCertificates(t *testing.T) {
	newCA := func(t *testing.T, name string) pki.Identity {
		t.Helper()
		ca, err := pki.NewCA(name, time.Now(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return ca
	}
	root, other, key := newCA(t, "root"), newCA(t, "other root"), newCA(t, "key")
	under, across := subordinate(t, root, key), subordinate(t, other, key)
	own, err := under.IssueServer("key server", nil, nil, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason  string
		trusted []pki.Identity
		shown   []pki.Identity // sent with the certificate
		revoked []string
		ok      bool
	}{
		"Nothing":      {"nothing is revoked", []pki.Identity{root}, []pki.Identity{under}, nil, true},
		"OtherSerial":  {"somebody else's certificate is", []pki.Identity{root}, []pki.Identity{under}, []string{named(root.Certificate, under.Certificate)}, true},
		"Leaf":         {"the peer's own certificate is", []pki.Identity{under}, nil, []string{named(own.Certificate, under.Certificate)}, false},
		"CA":           {"that of its CA is, by the root", []pki.Identity{root}, []pki.Identity{under}, []string{named(under.Certificate, root.Certificate)}, false},
		"TrustedCA":    {"that of its CA is, which is trusted by itself", []pki.Identity{root, under}, nil, []string{named(under.Certificate, root.Certificate)}, false},
		"UntrustedCRL": {"who revoked it is trusted by nobody", []pki.Identity{under}, nil, []string{named(under.Certificate, root.Certificate)}, true},
		"Root":         {"the root says so of itself", []pki.Identity{root}, []pki.Identity{under}, []string{named(root.Certificate, root.Certificate)}, false},
		"AnotherWay":   {"one of two ways is left", []pki.Identity{root, other}, []pki.Identity{under, across}, []string{named(under.Certificate, root.Certificate)}, true},
		"NoWay":        {"neither way is left", []pki.Identity{root, other}, []pki.Identity{under, across}, []string{named(under.Certificate, root.Certificate), named(across.Certificate, other.Certificate)}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := &registry{revoked: map[string]string{}}
			r.trust(identity{under, own}, 2, netip.AddrPort{})
			r.cas = nil
			for _, ca := range tc.trusted {
				r.cas = append(r.cas, keyserver.Certificate{DER: ca.Certificate.Raw})
			}
			for _, what := range tc.revoked {
				r.revoked[what] = "it is revoked"
			}
			chain := []*x509.Certificate{own.Certificate}
			for _, ca := range tc.shown {
				chain = append(chain, ca.Certificate)
			}
			known, err := load(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			_, ways, err := known.identify(chain, x509.ExtKeyUsageServerAuth, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			err = known.notRevoked(t.Context(), r, ways)
			if (err == nil) != tc.ok || err != nil && !strings.Contains(err.Error(), "revoked") {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
}

// TestUnreadableEvidence checks that no new connection is accepted while the revocation evidence cannot be read. Open
// connections stay open.
func TestUnreadableEvidence(t *testing.T) {
	w := newWorld(t, patience)
	ask := func() error {
		_, err := w.ask().AuthorizeKey(t.Context(), caller(t), keyserver.Use{Link: link})
		return err
	}
	for range connections {
		if err := ask(); err != nil {
			t.Fatal(err)
		}
	}
	w.knows.forget(func(r *registry) { r.failing = errors.New("no database") })
	w.gate.Changed([]keyserver.Change{{Kind: keyserver.ChangeRevocation, Action: keyserver.Updated}})
	if err := ask(); fault.As(err) == nil {
		t.Errorf("while it cannot be read: %v", err)
	}
	w.gate.endpoint.mu.Lock()
	open := len(w.gate.endpoint.open)
	w.gate.endpoint.mu.Unlock()
	if open != connections {
		t.Errorf("%d connections are left", open)
	}
	raw := w.raw(t, w.clientID)
	raw.Connect()
	rig.Within(t, patience, "a new connection is refused", func() bool { return strings.Contains(strings.Join(w.refused.lines(), ""), "no database") })
	w.knows.forget(func(r *registry) { r.failing = nil })
	rig.Within(t, patience, "it can be read again", func() bool { return ask() == nil })
}
