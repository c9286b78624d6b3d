package schema

import (
	"errors"
	"fmt"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/canonical"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
)

// DER is one ASN.1 object. A request may contain it as base64 of its DER or as one PEM
// block, with or without comments around it. A response contains base64.
type DER []byte

var errDER = errors.New("must be the canonical base64 of one DER object, or one PEM block")

// MarshalText encodes the DER in base64.
func (d DER) MarshalText() ([]byte, error) { return Base64(d).MarshalText() }

// UnmarshalText decodes either form. It also accepts PEM that was encoded in base64
// again, an easy mistake in a shell.
func (d *DER) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		return errDER
	}
	if !certtext.IsPEM(text) {
		raw, err := canonical.Decode(string(text))
		if err != nil {
			return errDER
		}
		text = raw
	}
	der, err := certtext.Object(text, "")
	if err != nil {
		return fmt.Errorf("%w: it %w", errDER, err)
	}
	*d = der
	return nil
}

// Format prints only the length, for every verb.
func (d DER) Format(f fmt.State, verb rune) { Base64(d).Format(f, verb) }

// IssuerDigest names a CA in the revocation routes: the SHA-256 or SHA-384 of its certificate in hexadecimal.
type IssuerDigest string

var errIssuerDigest = errors.New("must be 64 or 96 hexadecimal digits, as revocationDigest of GET /api/trusted-cas shows them")

// MarshalText returns upper-case digits.
func (d IssuerDigest) MarshalText() ([]byte, error) { return []byte(d), nil }

// UnmarshalText accepts digits of either case.
func (d *IssuerDigest) UnmarshalText(text []byte) error {
	if len(text) != 64 && len(text) != 96 {
		return errIssuerDigest
	}
	for _, c := range text {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return errIssuerDigest
		}
	}
	*d = IssuerDigest(strings.ToUpper(string(text)))
	return nil
}
