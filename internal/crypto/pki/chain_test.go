package pki_test

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/smallstep/pkcs7"
	"pgregory.net/rapid"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
)

func newLeaf(t *testing.T, ca pki.Identity, name string, at time.Time) pki.Identity {
	t.Helper()
	leaf, err := ca.IssueServer(name, []string{"localhost"}, nil, at, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

func encode(t *testing.T, certs ...*x509.Certificate) []byte {
	t.Helper()
	der, err := pki.EncodeChain(certs...)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func TestChainIsRefused(t *testing.T) {
	ca := newCA(t)
	leaf := newLeaf(t, ca, "leaf", now)
	good := encode(t, leaf.Certificate, ca.Certificate)
	signed, err := pkcs7.NewSignedData([]byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	if err := signed.AddSigner(leaf.Certificate, leaf.Key, pkcs7.SignerInfoConfig{}); err != nil {
		t.Fatal(err)
	}
	withContent, err := signed.Finish()
	if err != nil {
		t.Fatal(err)
	}
	many := make([]*x509.Certificate, 17)
	for i := range many {
		many[i] = ca.Certificate
	}
	cases := map[string]struct {
		der  []byte
		says string
	}{
		"Empty":         {nil, "one DER structure"},
		"Cut":           {good[:len(good)-1], "one DER structure"},
		"Trailing":      {append(slices.Clone(good), 0), "one DER structure"},
		"Indefinite":    {[]byte{0x30, 0x80, 0, 0}, "one DER structure"},
		"ACertificate":  {leaf.Certificate.Raw, "PKCS#7"},
		"EmptySequence": {[]byte{0x30, 0}, "PKCS#7"},
		"Signed":        {withContent, "certificates only"},
		"NoCertificate": {encode(t), "no server certificate"},
		"OnlyCA":        {encode(t, ca.Certificate), "no server certificate"},
		"TwoLeaves":     {encode(t, leaf.Certificate, newLeaf(t, ca, "second", now).Certificate), "more than one"},
		"TooMany":       {encode(t, many...), "more than 16"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := pki.ParseChain(tc.der); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want a sentence about %q", err, tc.says)
			}
		})
	}
}

// TestChainInAnyOrder checks every order, because a PKCS#7 set has none.
func TestChainInAnyOrder(t *testing.T) {
	ca := newCA(t)
	leaf := newLeaf(t, ca, "leaf", now)
	for _, der := range [][]byte{encode(t, leaf.Certificate, ca.Certificate), encode(t, ca.Certificate, leaf.Certificate), encode(t, leaf.Certificate)} {
		c, err := pki.ParseChain(der)
		if err != nil || !bytes.Equal(c.Leaf.Raw, leaf.Certificate.Raw) {
			t.Fatalf("%v", err)
		}
		if err := c.Verify([]*x509.Certificate{ca.Certificate}, now); err != nil {
			t.Error(err)
		}
	}
}

func TestChainLeadsToATrustedCA(t *testing.T) {
	ca, stranger := newCA(t), newCA(t)
	leaf := newLeaf(t, ca, "leaf", now)
	cases := map[string]struct {
		trusted []*x509.Certificate
		at      time.Time
		says    string
	}{
		"NoneTrusted":  {nil, now, "issuing CA /CN=Test CA is not trusted"},
		"OtherTrusted": {[]*x509.Certificate{stranger.Certificate}, now, "not trusted"},
		"LeafTrusted":  {[]*x509.Certificate{leaf.Certificate}, now, ""}, // a pinned certificate counts as its own root
		"NotYetValid":  {[]*x509.Certificate{ca.Certificate}, now.Add(-time.Hour), "valid from"},
		"Expired":      {[]*x509.Certificate{ca.Certificate}, now.Add(2 * 365 * 24 * time.Hour), "valid from"},
		"Trusted":      {[]*x509.Certificate{stranger.Certificate, ca.Certificate}, now, ""},
	}
	// A CA certificate in the chain does not become trusted.
	c, err := pki.ParseChain(encode(t, leaf.Certificate, ca.Certificate))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := c.Verify(tc.trusted, tc.at)
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
}

// TestChainOfAnything checks that no input makes the parser panic.
func TestChainOfAnything(t *testing.T) {
	ca := newCA(t)
	good := encode(t, newLeaf(t, ca, "leaf", now).Certificate, ca.Certificate)
	rapid.Check(t, func(t *rapid.T) {
		der := slices.Clone(good)
		for range rapid.IntRange(1, 4).Draw(t, "edits") {
			der[rapid.IntRange(0, min(len(der)-1, 80)).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		if c, err := pki.ParseChain(der); err == nil && c.Leaf == nil {
			t.Fatal("a chain without a leaf")
		}
		_, _ = pki.ParseChain(rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "bytes"))
	})
}
