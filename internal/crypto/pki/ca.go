package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
)

// extensionNames maps the object identifiers of the RFC 5280 extensions of a CA to their names.
var extensionNames = map[string]string{
	"2.5.29.9": "subjectDirectoryAttributes", "2.5.29.15": "keyUsage", "2.5.29.17": "subjectAltName", "2.5.29.18": "issuerAltName",
	"2.5.29.19": "basicConstraints", "2.5.29.30": "nameConstraints", "2.5.29.31": "cRLDistributionPoints", "2.5.29.32": "certificatePolicies",
	"2.5.29.33": "policyMappings", "2.5.29.35": "authorityKeyIdentifier", "2.5.29.36": "policyConstraints", "2.5.29.37": "extKeyUsage",
	"2.5.29.46": "freshestCRL", "2.5.29.54": "inhibitAnyPolicy", "1.3.6.1.5.5.7.1.1": "authorityInfoAccess", "1.3.6.1.5.5.7.1.11": "subjectInfoAccess",
}

func extensionName(id asn1.ObjectIdentifier) string {
	if name, ok := extensionNames[id.String()]; ok {
		return name + " (" + id.String() + ")"
	}
	return certtext.Cause(errors.New(id.String()))
}

// CheckCA rejects a CA certificate if VerifyClient would reject every client certificate that it issues. It also
// rejects weak keys and signatures. Each error is one sentence for the user.
func CheckCA(cert *x509.Certificate) error {
	switch unknown := cert.UnhandledCriticalExtensions; {
	case !cert.BasicConstraintsValid || !cert.IsCA:
		return errors.New("it is not a CA certificate: its basicConstraints do not allow it")
	case cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return errors.New("its keyUsage lacks keyCertSign, so it may not sign certificates")
	case len(unknown) > 0:
		// If the CA has a name constraint with an unsupported kind of name, the parser reports the extension here.
		return fmt.Errorf("the content of its critical extension %s cannot be checked; use a CA without this extension", extensionName(unknown[0]))
	case len(cert.ExtKeyUsage)+len(cert.UnknownExtKeyUsage) > 0 &&
		!slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageClientAuth) && !slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageAny):
		return errors.New("its extension extKeyUsage (2.5.29.37) lacks clientAuth, so its certificates cannot authenticate a client")
	}
	return CheckStrength(cert)
}

// VerifyClient verifies a client certificate at a given time. It is used at enrollment and in each handshake. It
// returns the chains to the roots, or the error of package x509.
func VerifyClient(cert *x509.Certificate, between []*x509.Certificate, roots *x509.CertPool, at time.Time) ([][]*x509.Certificate, error) {
	return cert.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: poolOf(between), CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func poolOf(certs []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	return pool
}

// IssuerOf returns the trusted CA that has signed the certificate. The CA must be valid at now. If the certificate
// becomes valid later, it is verified at its NotBefore. The error is one sentence for the user, with the error of
// package x509.
func IssuerOf(cert *x509.Certificate, cas []*x509.Certificate, now time.Time) (*x509.Certificate, error) {
	at := now
	if cert.NotBefore.After(at) {
		at = cert.NotBefore
	}
	var causes []string
	for _, ca := range cas {
		if !bytes.Equal(ca.RawSubject, cert.RawIssuer) {
			continue
		}
		err := CheckValidity(ca, now)
		if err == nil {
			if _, err = VerifyClient(cert, nil, poolOf([]*x509.Certificate{ca}), at); err == nil {
				return ca, nil
			}
		}
		if cause := certtext.Cause(err); len(causes) < maxCauses && !slices.Contains(causes, cause) {
			causes = append(causes, cause)
		}
	}
	if len(causes) == 0 {
		return nil, fmt.Errorf("its issuing CA %s is not trusted; add it with POST /api/trusted-cas", SlashName(cert.Issuer))
	}
	return nil, fmt.Errorf("its issuing CA %s is trusted, but the certificate cannot be verified: %s", SlashName(cert.Issuer), strings.Join(causes, "; "))
}

// maxCauses is the maximum number of causes in an error, if several CAs have the same name.
const maxCauses = 3

// CheckValidity rejects a certificate that is expired or not yet valid. Each error is one sentence for the user, with
// the time.
func CheckValidity(cert *x509.Certificate, now time.Time) error {
	switch {
	case now.Before(cert.NotBefore):
		return fmt.Errorf("it becomes valid on %s", cert.NotBefore.UTC().Format(time.RFC3339))
	case !now.Before(cert.NotAfter):
		return fmt.Errorf("it expired on %s", cert.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}
