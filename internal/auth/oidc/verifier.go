package oidc

import (
	"context"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Verifier verifies tokens of one issuer by its keys.
type Verifier struct {
	rules Rules
	keys  *keyring
	clock func() time.Time
}

// NewVerifier returns a verifier. Nothing is read before the first token: the
// file or the issuer may come later than this process.
func NewVerifier(rules Rules, from Source, clock func() time.Time) *Verifier {
	return &Verifier{rules: rules, keys: &keyring{source: from, clock: clock}, clock: clock}
}

// Verify answers what a good token says, or Refused. Every other error says
// that the issuer's keys could not be had.
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
		return Token{}, Refused("it cannot be verified")
	}
	if _, err := signed.Verify(key); err != nil {
		return Token{}, Refused("the signature is not by the issuer's key")
	}
	return c.Token, nil
}
