package dpop

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	_ "crypto/sha512"
	"encoding/base64"
	"math/big"
	"strings"
	"testing"
)

// BenchmarkVerify compares the complete verification of a proof with a bare verification of its signature, for each
// algorithm.
func BenchmarkVerify(b *testing.B) {
	large, err := rsa.GenerateKey(rand.Reader, 4096)
	fatal(b, err)
	for _, c := range []struct{ name, alg string }{
		{"ES256", "ES256"}, {"ES384", "ES384"}, {"EdDSA", "EdDSA"}, {"RS256-2048", "RS256"}, {"PS256-2048", "PS256"}, {"RS256-4096", "RS256"},
	} {
		d := newDraft(b, c.alg)
		if strings.HasSuffix(c.name, "4096") {
			d.header = strings.Replace(d.header, jwk(b, d.key), jwk(b, large), 1)
			d.key = large
		}
		text := d.sign(b)
		b.Run(c.name+"/Proof", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Verify(text, request()); err != nil {
					b.Fatal(err)
				}
			}
		})
		check := bare(b, d, text)
		b.Run(c.name+"/Signature", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !check() {
					b.Fatal("the signature does not verify")
				}
			}
		})
	}
}

func bare(b *testing.B, d draft, text string) func() bool {
	b.Helper()
	at := strings.LastIndexByte(text, '.')
	signed := []byte(text[:at])
	sig, err := base64.RawURLEncoding.DecodeString(text[at+1:])
	fatal(b, err)
	hash := crypto.SHA256
	if d.alg == "ES384" {
		hash = crypto.SHA384
	}
	digest := func() []byte {
		h := hash.New()
		h.Write(signed)
		return h.Sum(nil)
	}
	switch key := d.key.Public().(type) {
	case *ecdsa.PublicKey:
		half := len(sig) / 2
		return func() bool {
			return ecdsa.Verify(key, digest(), new(big.Int).SetBytes(sig[:half]), new(big.Int).SetBytes(sig[half:]))
		}
	case ed25519.PublicKey:
		return func() bool { return ed25519.Verify(key, signed, sig) }
	case *rsa.PublicKey:
		if d.alg == "PS256" {
			return func() bool { return rsa.VerifyPSS(key, hash, digest(), sig, nil) == nil }
		}
		return func() bool { return rsa.VerifyPKCS1v15(key, hash, digest(), sig) == nil }
	}
	b.Fatal("no such key")
	return nil
}
