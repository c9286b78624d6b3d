// Package oidc verifies the tokens that an identity provider signs (JWT, RFC
// 7519), among them those of Kubernetes service accounts. A strict reader of
// the project looks at every byte of header and claims first, pure rules decide
// on issuer, audience and time, and a maintained library verifies the signature
// by the issuer's keys. What a token says beyond its subject appears in no error.
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
	// MaxBytes is the longest token that is read.
	MaxBytes = 16 << 10
	// Leeway is how far the clocks of issuer and service may lie apart.
	Leeway = 30 * time.Second

	maxAudiences = 64
	maxText      = 1024 // bytes of issuer, subject and key id
)

// Refused says why a token is refused. It quotes nothing of the token.
type Refused string

// Error implements error.
func (r Refused) Error() string { return "the token is refused: " + string(r) }

// Token is what a token says that was verified.
type Token struct {
	Issuer    string
	Subject   string
	Audiences []string
	ExpiresAt time.Time
}

// Claimed is what a token says of itself. Nothing in it is to be trusted before
// the signature is verified.
type Claimed struct {
	Token
	notBefore, issuedAt time.Time // zero where the token does not say
	algorithm           jose.SignatureAlgorithm
	keyID               string
}

// accepted are the signature algorithms: asymmetric ones only, because the
// public key of an issuer must never pass for a shared secret.
var accepted = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// Read reads a token without believing it.
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
	// b64 is crit's companion (RFC 7797): it would change what is signed.
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
		return Refused("the header has crit or b64, and no extension is understood")
	case header.Has("typ") && (!typOK || !strings.EqualFold(typ, "JWT")):
		return Refused("typ is not JWT")
	case !slices.Contains(accepted, c.algorithm):
		return Refused("alg is not an asymmetric signature algorithm")
	case header.Has("kid") && (!kidOK || kid == "" || len(kid) > maxText):
		return Refused("kid is not a short text")
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
			return Refused(name + " is missing or not a text of 1 to " + strconv.Itoa(maxText) + " bytes")
		}
		*into = value
	}
	var ok bool
	if c.Audiences, ok = claims.Texts("aud", maxAudiences); !ok {
		return Refused("aud is missing or neither text nor up to " + strconv.Itoa(maxAudiences) + " texts")
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

// Rules are what a token has to satisfy besides its signature.
type Rules struct {
	Issuer    string   // compared byte by byte; empty leaves it to whoever verifies the signature
	Audiences []string // of which the token must name one
}

// Check is the decision on everything but the signature.
func (c Claimed) Check(r Rules, now time.Time) error {
	switch {
	case r.Issuer != "" && c.Issuer != r.Issuer:
		return Refused("iss is another issuer")
	case !NamesOneOf(c.Audiences, r.Audiences):
		return Refused("aud does not name this service")
	case !now.Before(c.ExpiresAt.Add(Leeway)):
		return Refused("exp has passed")
	case c.notBefore.After(now.Add(Leeway)):
		return Refused("nbf has not come; compare the clocks")
	case c.issuedAt.After(now.Add(Leeway)):
		return Refused("iat has not come; compare the clocks")
	}
	return nil
}

// NamesOneOf reports whether one of the wanted is among the given.
func NamesOneOf(given, wanted []string) bool {
	return slices.ContainsFunc(wanted, func(w string) bool { return slices.Contains(given, w) })
}
