package pki

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"strings"
)

// attributeNames maps the usual attribute types to their short names (RFC 4519
// and, for the mail address, PKCS#9). Others show as dotted numbers.
var attributeNames = map[string]string{
	"2.5.4.3": "CN", "2.5.4.4": "SN", "2.5.4.5": "serialNumber", "2.5.4.6": "C", "2.5.4.7": "L",
	"2.5.4.8": "ST", "2.5.4.9": "street", "2.5.4.10": "O", "2.5.4.11": "OU", "2.5.4.12": "title",
	"2.5.4.17": "postalCode", "2.5.4.42": "GN", "0.9.2342.19200300.100.1.25": "DC",
	"0.9.2342.19200300.100.1.1": "UID", "1.2.840.113549.1.9.1": "emailAddress",
}

// slashEscaper keeps the form unambiguous: a slash or a backslash inside a
// value is escaped, so a value can never look like a further component.
var slashEscaper = strings.NewReplacer(`\`, `\\`, `/`, `\/`)

// SlashName returns a distinguished name slash-prefixed and slash-separated in
// the order of the certificate, for instance /C=DE/O=Example/CN=Root.
func SlashName(name pkix.Name) string {
	var b strings.Builder
	attributes := name.Names
	if len(attributes) == 0 {
		attributes = flatten(name.ToRDNSequence())
	}
	for _, a := range attributes {
		key, ok := attributeNames[a.Type.String()]
		if !ok {
			key = a.Type.String()
		}
		fmt.Fprintf(&b, "/%s=%s", key, slashEscaper.Replace(fmt.Sprint(a.Value)))
	}
	return b.String()
}

func flatten(seq pkix.RDNSequence) []pkix.AttributeTypeAndValue {
	var out []pkix.AttributeTypeAndValue
	for _, set := range seq {
		out = append(out, set...)
	}
	return out
}

// KeyTypeName describes a certificate's public key, for instance "EC P-384".
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
