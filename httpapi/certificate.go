package httpapi

import (
	"crypto/sha256"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// certificateClass is the key server class of stored certificates.
const certificateClass = "Certificate"

// certificateOf shows a certificate without its body. What the key server does
// not know is null.
func certificateOf(c keyserver.Certificate) schema.Certificate {
	id, class, status := schema.Base64ID(c.ID), certificateClass, int(c.Status)
	out := schema.Certificate{
		CertificateID: &id, ClassName: &class, Subject: known(c.Subject), Issuer: known(c.Issuer),
		PublicKeyType: known(c.KeyType), Status: &status, StatusLabel: known(c.Status.Label()),
	}
	if len(c.Serial) > 0 {
		serial := schema.Base64(c.Serial)
		out.SerialNumber = &serial
	}
	if len(c.DER) > 0 {
		sum := sha256.Sum256(c.DER)
		hash := schema.Base64(sum[:])
		out.CertHash = &hash
	}
	if !c.NotBefore.IsZero() {
		from := c.NotBefore.UTC()
		out.EffectiveDate = &from
	}
	if !c.NotAfter.IsZero() {
		until := c.NotAfter.UTC()
		out.ExpirationDate = &until
	}
	return out
}

func known(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
