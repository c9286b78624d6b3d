// Package certtext parses external certificates, keys and revocation lists: from the API,
// resources, flags and files. No other code decodes PEM, so that every input accepts and
// rejects the same text.
//
// Each error completes a sentence that begins with the name of the input ("--ca-file is
// not ..."). It does not quote the text, because the input may contain a private key by
// mistake.
package certtext

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/brief"
)

// Types of PEM blocks.
const (
	CertificateType = "CERTIFICATE"
	RequestType     = "CERTIFICATE REQUEST"
	CRLType         = "X509 CRL"
)

// maxCause is the maximum length of a parser's message in bytes.
const maxCause = 200

// Cause returns the message of a parser as printable, valid UTF-8 of at most 200 bytes.
// Parsers quote parts of certificates, which are untrusted.
func Cause(err error) string {
	text := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(err.Error(), string(unicode.ReplacementChar)))
	return brief.Clip(text, maxCause)
}

// Certificate parses one DER certificate.
func Certificate(der []byte) (*x509.Certificate, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("is not an X.509 certificate: %s", Cause(err))
	}
	return cert, nil
}

// Request parses one DER certificate request.
func Request(der []byte) (*x509.CertificateRequest, error) {
	req, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, fmt.Errorf("is not a PKCS#10 certificate request: %s", Cause(err))
	}
	return req, nil
}

// RevocationList parses one DER revocation list.
func RevocationList(der []byte) (*x509.RevocationList, error) {
	list, err := x509.ParseRevocationList(der)
	if err == nil && len(list.Raw) != len(der) { // the parser ignores trailing bytes
		err = errors.New("trailing data")
	}
	if err != nil {
		return nil, fmt.Errorf("is not one certificate revocation list: %s", Cause(err))
	}
	return list, nil
}

// One returns the DER of the only block of a PEM text. The block must have the given
// type; the empty type accepts every type.
func One(text []byte, kind string) ([]byte, error) {
	want := "is not a PEM block"
	if kind != "" {
		want += " of type " + kind
	}
	blocks, err := Blocks(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", want, err)
	case len(blocks) == 0:
		return nil, errors.New(want)
	case kind != "" && blocks[0].Type != kind:
		return nil, fmt.Errorf("%s: %w", want, blocks[0].unexpected(kind))
	case len(blocks) > 1:
		return nil, fmt.Errorf("holds more than one PEM block: the second begins on line %d", blocks[1].Line)
	}
	return blocks[0].DER, nil
}

// Object returns the DER of an input that is either DER or a PEM text with one block of
// the given type. The empty type accepts every type. Other input is returned unchanged,
// so that the parser of the object rejects it.
func Object(content []byte, kind string) ([]byte, error) {
	var whole asn1.RawValue
	if rest, err := asn1.Unmarshal(content, &whole); err == nil && len(rest) == 0 {
		return content, nil
	}
	if !IsPEM(content) {
		return content, nil
	}
	return One(content, kind)
}

// Certificates returns the certificates of a PEM text. The text must have at least one certificate. It may also have
// comments, and nothing else.
func Certificates(text []byte) ([]*x509.Certificate, error) {
	return certificates(text)
}

// Pool returns the certificates of a PEM text as a pool.
func Pool(text []byte) (*x509.CertPool, error) {
	certs, err := Certificates(text)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	return pool, nil
}

func certificates(text []byte, passing ...string) ([]*x509.Certificate, error) {
	blocks, err := Blocks(text)
	if err != nil {
		return nil, fmt.Errorf("is not a list of PEM certificates: %w", err)
	}
	var certs []*x509.Certificate
	for _, b := range blocks {
		if b.Type != CertificateType {
			if passes(b.Type, passing) {
				continue
			}
			return nil, fmt.Errorf("is not a list of PEM certificates: %w", b.unexpected(CertificateType))
		}
		cert, err := Certificate(b.DER)
		if err != nil {
			return nil, fmt.Errorf("has a PEM block on line %d that %w", b.Line, err)
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, errors.New("holds no PEM certificate")
	}
	return certs, nil
}

// keyType is the suffix of each private key's block type.
const keyType = "PRIVATE KEY"

// parameters are types of blocks that tools write before a private key. The block of the key contains the same
// parameters.
var parameters = []string{"EC PARAMETERS", "DH PARAMETERS"}

func passes(kind string, passing []string) bool {
	for _, p := range passing {
		if kind == p || p == keyType && strings.HasSuffix(kind, keyType) {
			return true
		}
	}
	return false
}

// KeyPair returns a certificate with its chain and its key, each from a PEM text. Both texts may come from one file:
// KeyPair ignores keys in cert and certificates in key.
func KeyPair(cert, key []byte) (tls.Certificate, error) {
	certs, err := certificates(cert, append([]string{keyType}, parameters...)...)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("the certificate file %w", err)
	}
	private, err := privateKey(key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("the key file %w", err)
	}
	defer clear(private.Bytes)
	var chain []byte
	for _, c := range certs {
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: CertificateType, Bytes: c.Raw})...)
	}
	encoded := pem.EncodeToMemory(private)
	defer clear(encoded)
	pair, err := tls.X509KeyPair(chain, encoded)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("the certificate and the key cannot be used together: %s", Cause(err))
	}
	return pair, nil
}

func privateKey(text []byte) (*pem.Block, error) {
	blocks, err := Blocks(text)
	if err != nil {
		return nil, fmt.Errorf("is not a PEM private key: %w", err)
	}
	var found *Block
	for i, b := range blocks {
		switch {
		case b.Type == "ENCRYPTED "+keyType:
			return nil, fmt.Errorf("has an encrypted private key on line %d; decrypt it first", b.Line)
		case strings.HasSuffix(b.Type, keyType) && found == nil:
			found = &blocks[i]
		case strings.HasSuffix(b.Type, keyType):
			return nil, fmt.Errorf("holds more than one private key: the second begins on line %d", b.Line)
		case b.Type != CertificateType && !passes(b.Type, parameters):
			return nil, fmt.Errorf("is not a PEM private key: %w", b.unexpected(keyType))
		}
	}
	if found == nil {
		return nil, errors.New("holds no PEM private key")
	}
	return &pem.Block{Type: found.Type, Bytes: found.DER}, nil
}
