package controllers

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/smallstep/pkcs7"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
)

// peerChain is the certificate chain of a trust blob.
type peerChain struct {
	leaf *x509.Certificate
	// path leads from the leaf's issuer upwards, as far as the blob contains it.
	path []*x509.Certificate
}

// parsePeerChain reads the chain of a trust blob. Its errors continue a sentence that
// begins with the source of the blob. Other errors of a chain are found by the key server.
func parsePeerChain(der []byte) (peerChain, error) {
	p7, err := pkcs7.Parse(der)
	if err != nil {
		return peerChain{}, fmt.Errorf("has a chain that is not PKCS#7 with X.509 certificates: %s", certtext.Cause(err))
	}
	var c peerChain
	var cas []*x509.Certificate
	for _, cert := range p7.Certificates {
		switch {
		case cert.BasicConstraintsValid && cert.IsCA:
			cas = append(cas, cert)
		case c.leaf != nil:
			return peerChain{}, errors.New("has a chain with more than one certificate that is not a CA certificate")
		default:
			c.leaf = cert
		}
	}
	if c.leaf == nil {
		return peerChain{}, errors.New("has a chain without a server certificate")
	}
	for below := c.leaf; ; {
		i := slices.IndexFunc(cas, func(ca *x509.Certificate) bool { return below.CheckSignatureFrom(ca) == nil })
		if i < 0 {
			return c, nil
		}
		below = cas[i]
		c.path, cas = append(c.path, below), slices.Delete(cas, i, i+1)
	}
}

// issuer returns the name of the CA that the chain needs: the issuer of its last certificate.
func (c peerChain) issuer() string {
	if len(c.path) == 0 {
		return c.leaf.Issuer.String()
	}
	return c.path[len(c.path)-1].Issuer.String()
}

// complete reports whether the chain ends at a root: then it
// contains every CA that could vouch for it.
func (c peerChain) complete() bool {
	if len(c.path) == 0 {
		return false
	}
	top := c.path[len(c.path)-1]
	return slices.Equal(top.RawIssuer, top.RawSubject)
}

func fingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:])
}
