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

// peerChain is the certificate chain in a trust blob of a peer.
type peerChain struct {
	leaf *x509.Certificate
	// path has the CAs above the leaf that are in the blob, beginning with the issuer of the leaf.
	path []*x509.Certificate
}

// parsePeerChain parses the chain of a trust blob. Its errors have no subject; the caller puts the source of the blob
// before them. It does not validate the chain, which the key server does.
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

// complete reports whether the chain ends with a root CA. If so, no CA outside the chain can be its issuer.
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
