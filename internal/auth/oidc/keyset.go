package oidc

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
)

// Limits of a key set and of its RSA keys. Smaller RSA keys are weak, larger ones are too expensive to verify.
const (
	maxKeys    = 64
	minRSABits = 2048
	maxRSABits = 8192
)

// keySet contains the keys of an issuer that can verify tokens.
type keySet []jose.JSONWebKey

// parseKeys returns the public signing keys of a JWK set. It skips all other keys, because they may have types that
// this program does not know. It fails if the set has no usable key.
func parseKeys(text []byte) (keySet, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, errors.New("not a JWK set")
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("the JWK set has %d keys; it must have at most %d", len(set.Keys), maxKeys)
	}
	var keys keySet
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if err := key.UnmarshalJSON(raw); err == nil && key.IsPublic() && key.Valid() && (key.Use == "" || key.Use == "sig") {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("the JWK set has no usable public key")
	}
	return keys, nil
}

// find returns the key with the kid of the token if the key allows the token's algorithm, and nil otherwise. A token
// without kid is accepted only if the issuer has exactly one key.
func (s keySet) find(c Claimed) any {
	if c.keyID == "" && len(s) != 1 {
		return nil
	}
	for _, key := range s {
		if (c.keyID == "" || key.KeyID == c.keyID) && fits(key, c.algorithm) {
			return key.Key
		}
	}
	return nil
}

func fits(key jose.JSONWebKey, alg jose.SignatureAlgorithm) bool {
	if key.Algorithm != "" && key.Algorithm != string(alg) {
		return false
	}
	switch public := key.Key.(type) {
	case *rsa.PublicKey:
		bits := public.N.BitLen()
		return (alg[:2] == "RS" || alg[:2] == "PS") && bits >= minRSABits && bits <= maxRSABits
	case *ecdsa.PublicKey:
		return public.Curve == map[jose.SignatureAlgorithm]elliptic.Curve{
			jose.ES256: elliptic.P256(), jose.ES384: elliptic.P384(), jose.ES512: elliptic.P521(),
		}[alg]
	case ed25519.PublicKey:
		return alg == jose.EdDSA
	default:
		return false
	}
}
