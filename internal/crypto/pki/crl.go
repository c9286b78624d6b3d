package pki

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
)

// clockSkew is how far the thisUpdate of a CRL may be in the future.
const clockSkew = 5 * time.Minute

// CRL is a parsed, complete certificate revocation list.
type CRL struct {
	list *x509.RevocationList
}

// ParseCRL parses a CRL that is valid at now. It rejects a CRL that covers only a part of the issuer's certificates,
// because all other certificates would count as not revoked. Each error is one sentence for the user.
func ParseCRL(der []byte, now time.Time) (CRL, error) {
	list, err := certtext.RevocationList(der)
	if err != nil {
		return CRL{}, fmt.Errorf("the content %w", err)
	}
	if hasCritical(list.Extensions) {
		return CRL{}, errors.New("the revocation list has an unknown critical extension, as a delta or partial list has; send the complete list")
	}
	for _, e := range list.RevokedCertificateEntries {
		if hasCritical(e.Extensions) {
			return CRL{}, errors.New("an entry of the revocation list has an unknown critical extension, as in an indirect list; send the list of the issuer itself")
		}
	}
	switch {
	case list.NextUpdate.IsZero():
		return CRL{}, errors.New("the revocation list has no nextUpdate, so its expiry is unknown; send a list with nextUpdate")
	case !now.Before(list.NextUpdate):
		return CRL{}, fmt.Errorf("the revocation list expired on %s (nextUpdate); send the current one", list.NextUpdate.UTC().Format(time.RFC3339))
	case list.ThisUpdate.After(now.Add(clockSkew)):
		return CRL{}, fmt.Errorf("the thisUpdate of the revocation list, %s, is in the future; check the clocks of the issuer and the key server", list.ThisUpdate.UTC().Format(time.RFC3339))
	}
	return CRL{list}, nil
}

// SignedBy reports whether the CA has issued and signed the CRL.
func (c CRL) SignedBy(ca *x509.Certificate) bool {
	return bytes.Equal(ca.RawSubject, c.list.RawIssuer) && c.list.CheckSignatureFrom(ca) == nil
}

// Issuer returns the issuer's name in slash form.
func (c CRL) Issuer() string { return SlashName(c.list.Issuer) }

// ThisUpdate returns the time at which the CRL was issued.
func (c CRL) ThisUpdate() time.Time { return c.list.ThisUpdate }

// NextUpdate returns the latest time at which the issuer publishes the next CRL.
func (c CRL) NextUpdate() time.Time { return c.list.NextUpdate }

// Number returns the CRL number as big-endian bytes; empty if the CRL has none.
func (c CRL) Number() []byte {
	if c.list.Number == nil {
		return nil
	}
	return c.list.Number.Bytes()
}

// Serials returns the serial numbers of the revoked certificates as big-endian bytes.
func (c CRL) Serials() [][]byte {
	serials := make([][]byte, len(c.list.RevokedCertificateEntries))
	for i, e := range c.list.RevokedCertificateEntries {
		serials[i] = e.SerialNumber.Bytes()
	}
	return serials
}

// OlderThan reports whether the CRL is older than a CRL with the given number and date. A CRL without a number is older
// than a CRL with a number.
func (c CRL) OlderThan(number []byte, thisUpdate time.Time) bool {
	if c.list.ThisUpdate.Before(thisUpdate) {
		return true
	}
	if len(number) == 0 {
		return false
	}
	return c.list.Number == nil || c.list.Number.Cmp(new(big.Int).SetBytes(number)) < 0
}

func hasCritical(extensions []pkix.Extension) bool {
	for _, e := range extensions {
		if e.Critical {
			return true
		}
	}
	return false
}
