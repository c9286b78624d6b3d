package controllers

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/smallstep/pkcs7"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki/certtext"
)

// peerChain is what a trust blob says of a peer's certificate.
type peerChain struct {
	leaf *x509.Certificate
	// path leads from the leaf's issuer upwards, as far as the blob has it.
	path []*x509.Certificate
}

// parsePeerChain reads the chain of a trust blob. Its errors complete a
// sentence that begins with where the blob comes from. What may be wrong with a
// chain beyond that is for the key server to say.
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
			return peerChain{}, errors.New("has a chain with more than one certificate that is no CA certificate")
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

// issuer names the CA that the chain needs: the last that it has or names.
func (c peerChain) issuer() string {
	if len(c.path) == 0 {
		return c.leaf.Issuer.String()
	}
	return c.path[len(c.path)-1].Issuer.String()
}

// complete reports whether the chain ends at a root, so that none of the CAs
// that could vouch for it is missing from it.
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
