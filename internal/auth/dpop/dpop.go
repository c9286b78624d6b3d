// Package dpop verifies proofs of possession (RFC 9449). First, a strict parser checks every byte of a proof, because
// JOSE libraries accept duplicate claims, claims in another case, line breaks inside base64url and unused bits. Then a
// maintained library verifies the signature. No error contains the content of a proof.
package dpop

import (
	"crypto/sha256"
	"encoding/base64"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

const (
	// MaxBytes is the maximum length of a proof. A proof with an RSA key of 4096 bits is shorter than 3 KiB.
	MaxBytes = 8 << 10
	// Window is the maximum difference between the time of a proof and the current time, in both directions.
	Window = time.Minute
	// maxID is the maximum length of the jti in bytes.
	maxID = 256
)

// Request describes the request that a proof has to match.
type Request struct {
	Method string
	// Site reports which origins (scheme, host and port) reach the key server. Path is the requested path, with the
	// escapes that the client sent.
	Site Site
	Path string
	// Token is the session id of the request. It is empty for a login; then the proof needs no ath.
	Token string
	// Key is the thumbprint of the required key; empty: any key.
	Key string
	Now time.Time
}

// Proof is a verified proof.
type Proof struct {
	Key      string // RFC 7638 thumbprint, SHA-256 in base64url
	ID       string // jti
	IssuedAt time.Time
}

// Digest identifies a used proof: the hash of its key and jti. The text of the proof is not hashed, because one
// signature can be encoded in several ways.
func (p Proof) Digest() [32]byte {
	return sha256.Sum256([]byte(p.Key + p.ID)) // all thumbprints have the same length
}

// Verify checks that text is a proof for the request. It returns PROOF_MALFORMED, or the first mismatch:
// PROOF_KEY_MISMATCH, PROOF_METHOD_MISMATCH, PROOF_URI_MISMATCH, PROOF_TOKEN_MISMATCH, PROOF_STALE,
// PROOF_INVALID_SIGNATURE. It verifies the signature last, because that is the most expensive step. It does not check
// whether the proof was used before.
func Verify(text string, r Request) (Proof, error) {
	p, err := read(text)
	if err != nil {
		return Proof{}, err
	}
	if err := p.fits(r); err != nil {
		return Proof{}, err
	}
	if err := p.verify(text); err != nil {
		return Proof{}, err
	}
	return Proof{Key: p.thumbprint, ID: p.id, IssuedAt: p.issuedAt}, nil
}

func (p *parsed) fits(r Request) error {
	away := r.Now.Sub(p.issuedAt)
	switch {
	case r.Key != "" && p.thumbprint != r.Key:
		return fault.New(fault.ProofKeyMismatch, "the DPoP proof must be signed with the key of the session").
			Audited(fault.ReasonProofKey)
	case p.method != r.Method:
		return fault.New(fault.ProofMethodMismatch, "htm of the DPoP proof must be the method of the request").
			Audited(fault.ReasonProofMethod)
	case !reached(p.uri, r.Site, r.Path):
		return fault.New(fault.ProofURIMismatch, "htu of the DPoP proof is not the URL of the request; it must have the scheme, host and port of --external-url "+
			"(default: a name in the server certificate and the port of --listen), and the path of the request").
			Audited(fault.ReasonProofURI)
	case r.Token != "" && p.tokenHash != tokenHash(r.Token):
		return fault.New(fault.ProofTokenMismatch, "ath of the DPoP proof must be the SHA-256 of the session id in base64url").
			Audited(fault.ReasonProofToken)
	case away > Window, away < -Window:
		return fault.New(fault.ProofStale, "iat of the DPoP proof differs from the server time by more than %d seconds; check the clock of the client", int(Window.Seconds())).
			Audited(fault.ReasonProofStale)
	}
	return nil
}

func tokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// malformed returns an error that names the invalid part without its content.
func malformed(what string) error {
	return fault.New(fault.ProofMalformed, "the DPoP proof is malformed: %s", what).Audited(fault.ReasonProofMalformed)
}
