// Package dpop verifies proofs of possession (RFC 9449). A strict reader of
// its own looks at every byte of a proof first, because JOSE libraries read
// duplicate claims, claims in another case, line breaks inside base64url and
// stray bits as if nothing were wrong; then a maintained library verifies the
// signature. What a proof says never appears in an error.
package dpop

import (
	"crypto/sha256"
	"encoding/base64"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

const (
	// MaxBytes is the longest proof that is read. One with an RSA key of 4096
	// bits takes less than 3 KiB.
	MaxBytes = 8 << 10
	// Window is how far the time of a proof may lie from now, either way.
	Window = time.Minute
	// maxID bounds the jti.
	maxID = 256
)

// Request is what a proof has to be for.
type Request struct {
	Method string
	// Site is where clients reach the service, Path what the client asked for
	// there, escaped as it came.
	Site Site
	Path string
	// Token is the session id that the request carries. A login carries none,
	// and its proof needs no ath.
	Token string
	// Key is the thumbprint of the only key that will do, empty for any key.
	Key string
	Now time.Time
}

// Proof is a verified proof.
type Proof struct {
	Key      string // RFC 7638 thumbprint, SHA-256 in base64url
	ID       string // jti
	IssuedAt time.Time
}

// Digest is what the use of a proof is remembered by: its key and its jti,
// never its text, because one signature can be spelled in more than one way.
func (p Proof) Digest() [32]byte {
	return sha256.Sum256([]byte(p.Key + p.ID)) // all thumbprints are of one length
}

// Verify checks that text is a proof for the request. It answers
// PROOF_MALFORMED, or says what does not fit: PROOF_KEY_MISMATCH,
// PROOF_METHOD_MISMATCH, PROOF_URI_MISMATCH, PROOF_TOKEN_MISMATCH, PROOF_STALE,
// PROOF_INVALID_SIGNATURE. The signature, which costs the most, comes last.
// Whether the proof was used before is the caller's to know.
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
		return fault.New(fault.ProofKeyMismatch, "the DPoP proof is by another key than the one that the session is bound to").
			Audited(fault.ReasonProofKey)
	case p.method != r.Method:
		return fault.New(fault.ProofMethodMismatch, "htm of the DPoP proof is not the method of the request").
			Audited(fault.ReasonProofMethod)
	case !reached(p.uri, r.Site, r.Path):
		return fault.New(fault.ProofURIMismatch, "htu of the DPoP proof is not the URL of the request: scheme, host, port and path, "+
			"as --external-url has them, or else a name of the server's certificate and the port that it listens on").
			Audited(fault.ReasonProofURI)
	case r.Token != "" && p.tokenHash != tokenHash(r.Token):
		return fault.New(fault.ProofTokenMismatch, "ath of the DPoP proof is not the SHA-256 of the session id in base64url").
			Audited(fault.ReasonProofToken)
	case away > Window, away < -Window:
		return fault.New(fault.ProofStale, "iat of the DPoP proof is more than %d seconds from now; compare the clocks", int(Window.Seconds())).
			Audited(fault.ReasonProofStale)
	}
	return nil
}

func tokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// malformed names the part that is wrong, and never what it holds.
func malformed(what string) error {
	return fault.New(fault.ProofMalformed, "the DPoP proof is malformed: %s", what).Audited(fault.ReasonProofMalformed)
}
