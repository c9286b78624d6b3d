// Package tokens signs tokens like the issuer of a cluster's service account tokens.
package tokens

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// Issuer signs tokens with one key.
type Issuer struct {
	URL, Audience string
	KeysFile      string // its public key as a JWK set
	signer        jose.Signer
}

// NewIssuer returns an issuer with a new key.
func NewIssuer(t testing.TB, url, audience string) *Issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	rig.Must(t, err)
	i := &Issuer{URL: url, Audience: audience, KeysFile: filepath.Join(t.TempDir(), "jwks.json")}
	i.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "one"}}, nil)
	rig.Must(t, err)
	public, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "one", Algorithm: string(jose.ES256), Use: "sig"}}})
	rig.Must(t, err)
	rig.Must(t, os.WriteFile(i.KeysFile, public, 0o600))
	return i
}

// Token returns a token of the subject. If life is negative, the token has expired.
func (i *Issuer) Token(t testing.TB, subject string, life time.Duration) string {
	t.Helper()
	now := time.Now()
	issued := jwt.NewNumericDate(now.Add(min(life, 0)))
	token, err := jwt.Signed(i.signer).Claims(jwt.Claims{
		Issuer: i.URL, Subject: subject, Audience: jwt.Audience{i.Audience}, IssuedAt: issued, NotBefore: issued, Expiry: jwt.NewNumericDate(now.Add(life)),
	}).Serialize()
	rig.Must(t, err)
	return token
}
