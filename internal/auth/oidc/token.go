// Package oidc verifies tokens that an identity provider signs (JWT, RFC 7519), such as the tokens of Kubernetes
// service accounts. First, a strict parser checks every byte of header and claims. Then the claims are compared with
// the required issuer, audience and time. Last, a maintained library verifies the signature with the keys of the
// issuer. Errors contain no content of a token except its subject.
package oidc

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/jws"
)

const (
	// MaxBytes is the maximum length of a token.
	MaxBytes = 16 << 10
	// Leeway is the tolerated difference between the clocks of the issuer and this service.
	Leeway = 30 * time.Second

	maxAudiences = 64
	maxText      = 1024 // bytes of issuer, subject or key id
)

// Refused is the reason why a token is refused. It contains no text of the token.
type Refused string

func (r Refused) Error() string { return "the token is refused: " + string(r) }

// Token is the content of a verified token.
type Token struct {
	Issuer    string
	Subject   string
	Audiences []string
	ExpiresAt time.Time
}

// Claimed is the content of a token before its signature is verified. It is untrusted.
type Claimed struct {
	Token
	notBefore, issuedAt time.Time // zero if the claim is missing
	algorithm           jose.SignatureAlgorithm
	keyID               string
}

// accepted contains the accepted signature algorithms. All are asymmetric, so that a public key is never used as a
// shared secret.
var accepted = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// Read parses a token without verifying it.
func Read(text string) (Claimed, error) {
	parts, err := jws.Split(text, MaxBytes)
	if err != nil {
		return Claimed{}, Refused(err.Error())
	}
	var c Claimed
	if err := c.readHeader(parts.Header); err != nil {
		return Claimed{}, err
	}
	if err := c.readClaims(parts.Payload); err != nil {
		return Claimed{}, err
	}
	return c, nil
}

func (c *Claimed) readHeader(text []byte) error {
	// b64 (RFC 7797) is refused like crit, because it would change which bytes are signed.
	header, err := jws.Object(text, "the header", "typ", "alg", "kid", "crit", "b64")
	if err != nil {
		return Refused(err.Error())
	}
	typ, typOK := header.Text("typ")
	alg, _ := header.Text("alg")
	kid, kidOK := header.Text("kid")
	c.algorithm, c.keyID = jose.SignatureAlgorithm(alg), kid
	switch {
	case header.Has("crit") || header.Has("b64"):
		return Refused("the header has crit or b64, but extensions are not supported")
	case header.Has("typ") && (!typOK || !strings.EqualFold(typ, "JWT")):
		return Refused("typ must be JWT")
	case !slices.Contains(accepted, c.algorithm):
		return Refused("alg is not an asymmetric signature algorithm")
	case header.Has("kid") && (!kidOK || kid == "" || len(kid) > maxText):
		return Refused("kid must be a string of 1 to " + strconv.Itoa(maxText) + " bytes")
	}
	return nil
}

func (c *Claimed) readClaims(text []byte) error {
	claims, err := jws.Object(text, "the payload", "iss", "sub", "aud", "exp", "nbf", "iat")
	if err != nil {
		return Refused(err.Error())
	}
	for name, into := range map[string]*string{"iss": &c.Issuer, "sub": &c.Subject} {
		value, ok := claims.Text(name)
		if !ok || value == "" || len(value) > maxText {
			return Refused(name + " is missing or not a string of 1 to " + strconv.Itoa(maxText) + " bytes")
		}
		*into = value
	}
	var ok bool
	if c.Audiences, ok = claims.Texts("aud", maxAudiences); !ok {
		return Refused("aud is missing or not a string or an array of at most " + strconv.Itoa(maxAudiences) + " strings")
	}
	if c.ExpiresAt, ok = claims.Time("exp"); !ok {
		return Refused("exp is missing or not a time in seconds")
	}
	for name, into := range map[string]*time.Time{"nbf": &c.notBefore, "iat": &c.issuedAt} {
		if *into, ok = claims.Time(name); claims.Has(name) && !ok {
			return Refused(name + " is not a time in seconds")
		}
	}
	return nil
}

// Rules are the requirements for a token apart from its signature.
type Rules struct {
	Issuer    string   // must be equal byte by byte; if empty, only the verifier of the signature checks the issuer
	Audiences []string // the token must name one of them
}

// Check checks all claims, but not the signature.
func (c Claimed) Check(r Rules, now time.Time) error {
	switch {
	case r.Issuer != "" && c.Issuer != r.Issuer:
		return Refused("iss is not the configured issuer")
	case !NamesOneOf(c.Audiences, r.Audiences):
		return Refused("aud does not contain an audience of this service")
	case !now.Before(c.ExpiresAt.Add(Leeway)):
		return Refused("exp is in the past")
	case c.notBefore.After(now.Add(Leeway)):
		return Refused("nbf is in the future; compare the clocks")
	case c.issuedAt.After(now.Add(Leeway)):
		return Refused("iat is in the future; compare the clocks")
	}
	return nil
}

// NamesOneOf reports whether given contains one of wanted.
func NamesOneOf(given, wanted []string) bool {
	return slices.ContainsFunc(wanted, func(w string) bool { return slices.Contains(given, w) })
}
