package pki

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki/slash"
)

// SlashName returns a distinguished name in slash form (slash.Name).
func SlashName(name pkix.Name) string { return slash.Name(name) }

// KeyTypeName returns a description of a certificate's public key, for example "EC P-384".
func KeyTypeName(cert *x509.Certificate) string {
	switch key := cert.PublicKey.(type) {
	case *ecdsa.PublicKey:
		return "EC " + key.Params().Name
	case *rsa.PublicKey:
		return fmt.Sprintf("RSA %d", key.N.BitLen())
	case ed25519.PublicKey:
		return "Ed25519"
	default:
		return cert.PublicKeyAlgorithm.String()
	}
}
