package pki

import (
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"time"

	"github.com/smallstep/pkcs7"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
)

const maxChain = 16

// Chain is a server certificate with the intermediate certificates up to a CA.
type Chain struct {
	Leaf          *x509.Certificate
	Intermediates []*x509.Certificate // CA certificates, in the order of the PKCS#7 structure
}

// EncodeChain encodes certificates as PKCS#7 without content and signatures.
func EncodeChain(certs ...*x509.Certificate) ([]byte, error) {
	var raw []byte
	for _, c := range certs {
		raw = append(raw, c.Raw...)
	}
	der, err := pkcs7.DegenerateCertificate(raw)
	if err != nil {
		return nil, fmt.Errorf("encode a certificate chain: %w", err)
	}
	return der, nil
}

// ParseChain parses PKCS#7 with one server certificate and CA certificates. The set of certificates in PKCS#7 has no
// order, so the leaf is the only certificate that is not a CA. Each error is one sentence for the user.
func ParseChain(der []byte) (Chain, error) {
	// The parser below also accepts BER and ignores trailing data, so this checks for DER first.
	var outer asn1.RawValue
	if rest, err := asn1.Unmarshal(der, &outer); err != nil || len(rest) > 0 {
		return Chain{}, errors.New("the chain is not one DER structure")
	}
	p7, err := pkcs7.Parse(der)
	if err != nil {
		return Chain{}, fmt.Errorf("the chain is not PKCS#7 with X.509 certificates: %s", certtext.Cause(err))
	}
	// A signature is refused, because it would not be verified.
	if len(p7.Signers) > 0 || len(p7.Content) > 0 {
		return Chain{}, errors.New("the chain must be PKCS#7 with certificates only, without content or signatures")
	}
	if len(p7.Certificates) > maxChain {
		return Chain{}, fmt.Errorf("the chain has more than %d certificates", maxChain)
	}
	var c Chain
	for _, cert := range p7.Certificates {
		switch {
		case cert.BasicConstraintsValid && cert.IsCA:
			c.Intermediates = append(c.Intermediates, cert)
		case c.Leaf == nil:
			c.Leaf = cert
		default:
			return Chain{}, errors.New("the chain has more than one certificate that is not a CA certificate")
		}
	}
	if c.Leaf == nil {
		return Chain{}, errors.New("the chain has no server certificate")
	}
	return c, nil
}

// Verify checks that the chain leads to one of the trusted CAs at now. It does not check the permitted usage of the
// certificate; each handshake does. Each error is one sentence for the user.
func (c Chain) Verify(trusted []*x509.Certificate, now time.Time) error {
	_, err := c.Leaf.Verify(x509.VerifyOptions{
		Roots: poolOf(trusted), Intermediates: poolOf(c.Intermediates), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	var unknown x509.UnknownAuthorityError
	switch {
	case err == nil:
		return nil
	case now.Before(c.Leaf.NotBefore) || now.After(c.Leaf.NotAfter):
		return fmt.Errorf("the server certificate is valid from %s until %s, not now",
			c.Leaf.NotBefore.UTC().Format(time.RFC3339), c.Leaf.NotAfter.UTC().Format(time.RFC3339))
	case errors.As(err, &unknown):
		return fmt.Errorf("its issuing CA %s is not trusted by this key server; add that CA first: %s", SlashName(c.Leaf.Issuer), certtext.Cause(err))
	default:
		return fmt.Errorf("the chain cannot be verified: %s", certtext.Cause(err))
	}
}
