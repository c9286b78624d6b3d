package oidc

import (
	"context"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Verifier verifies the tokens of one issuer with the issuer's keys.
type Verifier struct {
	rules Rules
	keys  *keyring
	clock func() time.Time
}

// NewVerifier returns a verifier. It reads the keys when the first token is verified, because the file or the issuer
// may not be available when this process starts.
func NewVerifier(rules Rules, from Source, clock func() time.Time) *Verifier {
	return &Verifier{rules: rules, keys: &keyring{source: from, clock: clock}, clock: clock}
}

// Verify returns the content of a valid token. It returns Refused for an invalid token. All other errors mean that the
// keys of the issuer are unavailable.
func (v *Verifier) Verify(ctx context.Context, text string) (Token, error) {
	c, err := Read(text)
	if err != nil {
		return Token{}, err
	}
	if err := c.Check(v.rules, v.clock()); err != nil {
		return Token{}, err
	}
	key, err := v.keys.find(ctx, c)
	if err != nil {
		return Token{}, err
	}
	signed, err := jose.ParseSignedCompact(text, accepted)
	if err != nil || len(signed.Signatures) != 1 {
		return Token{}, Refused("it is not a JWT with one signature")
	}
	if _, err := signed.Verify(key); err != nil {
		return Token{}, Refused("the signature does not verify with the key of the issuer")
	}
	return c.Token, nil
}
