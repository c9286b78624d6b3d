package client

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	_ "crypto/sha512" // ES384
	"encoding/asn1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
)

// prover creates DPoP proofs (RFC 9449) with one key.
type prover struct {
	key    crypto.Signer
	hash   crypto.Hash // 0: the message itself is signed
	size   int         // bytes of an ECDSA coordinate, 0 for other keys
	header string
	skew   atomic.Int64 // of the key server's clock relative to the local one, in nanoseconds
}

// publicKey is the public key as a JWK. Only the members of its type are set.
type publicKey struct {
	KeyType string `json:"kty"`
	Curve   string `json:"crv,omitzero"`
	X       string `json:"x,omitzero"`
	Y       string `json:"y,omitzero"`
	N       string `json:"n,omitzero"`
	E       string `json:"e,omitzero"`
}

type proofHeader struct {
	Type string    `json:"typ"`
	Alg  string    `json:"alg"`
	Key  publicKey `json:"jwk"`
}

type proofClaims struct {
	ID        string `json:"jti"`
	Method    string `json:"htm"`
	URL       string `json:"htu"`
	IssuedAt  int64  `json:"iat"`
	TokenHash string `json:"ath,omitzero"`
}

// newProver returns nil if key is nil.
func newProver(key crypto.Signer) (*prover, error) {
	if key == nil {
		return nil, nil
	}
	p := &prover{key: key}
	h := proofHeader{Type: "dpop+jwt"}
	if err := p.describe(&h); err != nil {
		return nil, err
	}
	b, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	p.header = base64url(b)
	return p, nil
}

func base64url(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

var errProofKey = errors.New("the proof key must be ECDSA on P-256 or P-384, Ed25519, or RSA")

func (p *prover) describe(h *proofHeader) error {
	switch public := p.key.Public().(type) {
	case *ecdsa.PublicKey:
		name := public.Curve.Params().Name
		switch name {
		case "P-256":
			h.Alg, p.hash, p.size = "ES256", crypto.SHA256, 32
		case "P-384":
			h.Alg, p.hash, p.size = "ES384", crypto.SHA384, 48
		default:
			return errProofKey
		}
		point, err := public.Bytes() // 4, x, y
		if err != nil {
			return err
		}
		h.Key = publicKey{KeyType: "EC", Curve: name, X: base64url(point[1 : 1+p.size]), Y: base64url(point[1+p.size:])}
	case ed25519.PublicKey:
		h.Alg, h.Key = "EdDSA", publicKey{KeyType: "OKP", Curve: "Ed25519", X: base64url(public)}
	case *rsa.PublicKey:
		h.Alg, p.hash = "RS256", crypto.SHA256
		h.Key = publicKey{KeyType: "RSA", N: base64url(public.N.Bytes()), E: base64url(big.NewInt(int64(public.E)).Bytes())}
	default:
		return errProofKey
	}
	return nil
}

// prove returns a proof for one attempt of one request. The proof contains the URL without query and fragment.
func (p *prover) prove(method, url, token string, now time.Time) (string, error) {
	url, _, _ = strings.Cut(url, "?")
	claims := proofClaims{ID: rand.Text(), Method: method, URL: url, IssuedAt: now.Add(time.Duration(p.skew.Load())).Unix()}
	if token != "" {
		sum := sha256.Sum256([]byte(token))
		claims.TokenHash = base64url(sum[:])
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	signed := p.header + "." + base64url(payload)
	signature, err := p.sign([]byte(signed))
	if err != nil {
		return "", fmt.Errorf("sign the proof: %w", err)
	}
	return signed + "." + base64url(signature), nil
}

func (p *prover) sign(message []byte) ([]byte, error) {
	if p.hash != 0 {
		h := p.hash.New()
		h.Write(message)
		message = h.Sum(nil)
	}
	signature, err := p.key.Sign(rand.Reader, message, p.hash)
	if err != nil || p.size == 0 {
		return signature, err
	}
	// A crypto.Signer encodes ECDSA in ASN.1, and JOSE as two numbers of fixed length.
	var pair struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(signature, &pair); err != nil {
		return nil, err
	}
	return append(pair.R.FillBytes(make([]byte, p.size)), pair.S.FillBytes(make([]byte, p.size))...), nil
}

// retryable reports whether a new proof may succeed after this one was refused, and after how long. A new proof may
// succeed if the old one was stale, because the client now knows the key server's clock. It may also succeed if the
// transport itself repeated a read.
func (p *prover) retryable(k call, err error) (time.Duration, bool) {
	switch {
	case p == nil:
		return 0, false
	case IsCode(err, "PROOF_STALE"):
		return time.Second, true // a key server that restarted after a crash refuses proofs of the second before the restart
	default:
		return 0, IsCode(err, "PROOF_REPLAYED") && k.method == http.MethodGet
	}
}

// learn stores the difference to the key server's clock. The difference can be minutes. The Date header has no fraction
// of a second, so it stands for the entire second. A difference within that second counts as none.
func (p *prover) learn(resp *http.Response, code string, now time.Time) {
	if p == nil || code != "PROOF_STALE" {
		return
	}
	there, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return
	}
	skew := there.Sub(now)
	if skew < 0 {
		skew = min(skew+time.Second, 0)
	}
	p.skew.Store(int64(skew))
}

// Format hides the key.
func (p *prover) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "prover") }
