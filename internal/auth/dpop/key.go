package dpop

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"math/bits"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/jws"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Algorithms contains the accepted signature algorithms, in the format of a WWW-Authenticate challenge.
const Algorithms = "ES256 ES384 EdDSA Ed25519 RS256 RS384 RS512 PS256 PS384 PS512"

type algorithm struct {
	name       jose.SignatureAlgorithm
	kty, curve string
	coordinate int // bytes
	signature  int // length in bytes; 0 for RSA
}

// ed25519Name is the name of EdDSA with the curve Ed25519 in RFC 9864.
const ed25519Name = jose.SignatureAlgorithm("Ed25519")

var algorithms, accepted = func() (map[string]algorithm, []jose.SignatureAlgorithm) {
	table := map[string]algorithm{}
	var names []jose.SignatureAlgorithm
	for _, a := range []algorithm{
		{jose.ES256, "EC", "P-256", 32, 64}, {jose.ES384, "EC", "P-384", 48, 96},
		{jose.EdDSA, "OKP", "Ed25519", 32, 64}, {ed25519Name, "OKP", "Ed25519", 32, 64},
		{name: jose.RS256, kty: "RSA"}, {name: jose.RS384, kty: "RSA"}, {name: jose.RS512, kty: "RSA"},
		{name: jose.PS256, kty: "RSA"}, {name: jose.PS384, kty: "RSA"}, {name: jose.PS512, kty: "RSA"},
	} {
		table[string(a.name)] = a
		names = append(names, a.name)
	}
	return table, names
}()

// Limits of an RSA key. Smaller keys are weak, larger keys are too expensive to verify.
const (
	minRSABits = 2048
	maxRSABits = 4096
	maxRSAe    = 4 // bytes of the exponent
)

// private contains the JWK members that only private and symmetric keys have (RFC 7518 section 6).
var private = []string{"d", "p", "q", "dp", "dq", "qi", "oth", "k"}

// readKey parses a public key (RFC 7517) and computes its thumbprint (RFC 7638). It
// accepts only the canonical encoding of each value, so that a key has exactly one
// thumbprint.
func (p *parsed) readKey(raw jsontext.Value) error {
	key, err := jws.Object(raw, "jwk", append([]string{"kty", "crv", "x", "y", "n", "e"}, private...)...)
	if err != nil {
		return malformed(err.Error())
	}
	for _, name := range private {
		if key.Has(name) {
			return malformed("jwk contains a private key; replace that key, and send only the public key")
		}
	}
	if kty, _ := key.Text("kty"); kty != p.alg.kty {
		return malformed("kty of jwk does not match alg")
	}
	if p.alg.kty == "RSA" {
		return p.readRSA(key)
	}
	return p.readCurve(key)
}

func (p *parsed) readCurve(key jws.Members) error {
	if curve, _ := key.Text("crv"); curve != p.alg.curve {
		return malformed("crv of jwk does not match alg")
	}
	x, okX := coordinate(key, "x", p.alg.coordinate)
	if p.alg.kty == "OKP" {
		if !okX {
			return errCoordinate
		}
		p.thumbprint = thumbprint(`{"crv":"` + p.alg.curve + `","kty":"OKP","x":"` + x + `"}`)
		return nil
	}
	y, okY := coordinate(key, "y", p.alg.coordinate)
	if !okX || !okY {
		return errCoordinate
	}
	p.thumbprint = thumbprint(`{"crv":"` + p.alg.curve + `","kty":"EC","x":"` + x + `","y":"` + y + `"}`)
	return nil
}

var errCoordinate = malformed("x or y of jwk is not a coordinate of the curve in base64url")

func (p *parsed) readRSA(key jws.Members) error {
	nText, _ := key.Text("n")
	eText, _ := key.Text("e")
	n, okN := jws.Decode(nText)
	e, okE := jws.Decode(eText)
	if !okN || !okE || n[0] == 0 || e[0] == 0 || len(e) > maxRSAe {
		return malformed("n or e of jwk is not an integer in base64url")
	}
	if size := (len(n)-1)*8 + bits.Len8(n[0]); size < minRSABits || size > maxRSABits {
		return malformed("the RSA key in jwk must have from 2048 to 4096 bits")
	}
	p.alg.signature = len(n)
	p.thumbprint = thumbprint(`{"e":"` + eText + `","kty":"RSA","n":"` + nText + `"}`)
	return nil
}

// coordinate returns the text of a member, and whether it is the base64url encoding of size bytes.
func coordinate(key jws.Members, name string, size int) (string, bool) {
	spelled, _ := key.Text(name)
	b, ok := jws.Decode(spelled)
	return spelled, ok && len(b) == size
}

func thumbprint(canonical string) string {
	sum := sha256.Sum256([]byte(canonical))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

var errSignature = fault.New(fault.ProofInvalidSignature, "the DPoP proof must be signed with the key in its header").
	Audited(fault.ReasonProofSignature)

// verify verifies the signature with the library. The library parses the key and rejects points that are not on the
// curve.
func (p *parsed) verify(text string) error {
	signed, err := jose.ParseSignedCompact(text, accepted)
	if err != nil || len(signed.Signatures) != 1 || signed.Signatures[0].Header.JSONWebKey == nil {
		return malformed("the key in jwk is not usable")
	}
	var key any = signed.Signatures[0].Header.JSONWebKey
	if p.alg.name == ed25519Name {
		public, ok := signed.Signatures[0].Header.JSONWebKey.Key.(ed25519.PublicKey)
		if !ok {
			return malformed("the key in jwk is not usable")
		}
		key = ed25519Verifier{public}
	}
	if _, err := signed.Verify(key); err != nil {
		return errSignature
	}
	return nil
}

// ed25519Verifier verifies Ed25519 signatures with the algorithm name of RFC 9864, which the library does not support.
type ed25519Verifier struct{ key ed25519.PublicKey }

func (f ed25519Verifier) VerifyPayload(payload, signature []byte, alg jose.SignatureAlgorithm) error {
	if alg != ed25519Name || !ed25519.Verify(f.key, payload, signature) {
		return errors.New("the signature does not verify")
	}
	return nil
}
