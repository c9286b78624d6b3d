package session

import (
	"bytes"
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/auth/dpop"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// ProofAlgorithms contains the accepted algorithms of proofs, in the format of a WWW-Authenticate challenge.
const ProofAlgorithms = dpop.Algorithms

// Site reports which URLs reach the key server. The URL in a proof must be one of them.
type Site = dpop.Site

// Proof contains the evidence in a request for the key and the client certificate that the session is bound to.
type Proof struct {
	Sent   []string // the values of the DPoP header
	Method string
	Site   Site
	Path   string // as the client sent it
	// ForNew: the request creates a session from another one. The proof may be by the key of either session.
	ForNew bool
	// Claimed: the scheme of the Authorization header claims that the session is bound (RFC 9449 section 7.1).
	Claimed bool
	// Certificate is the client certificate of the connection in DER, or nil if there is none.
	Certificate []byte
}

// String hides the proof.
func (p Proof) String() string { return "proof for " + p.Method }

// GoString hides the proof from %#v.
func (p Proof) GoString() string { return p.String() }

// checkProof checks that the proof of a request is by the key that its session is bound to.
//
// If the session has no key, it refuses the proof, because the client wrongly expects that the session is bound.
func (m *Manager) checkProof(ctx context.Context, h *held, token string, p Proof) error {
	if h.record.BoundKey == "" {
		if len(p.Sent) > 0 && !p.ForNew || p.Claimed {
			return fault.New(fault.ProofKeyMismatch, "the session is not bound to a key; send no DPoP proof, or log in with one to bind the session").
				Audited(fault.ReasonProofKey)
		}
		return nil
	}
	err := m.checkBound(ctx, h, token, p)
	m.meter.proof(err)
	return err
}

// checkBound checks the proof of a request for a session that is bound to a key.
func (m *Manager) checkBound(ctx context.Context, h *held, token string, p Proof) error {
	if len(p.Sent) == 0 {
		return fault.New(fault.ProofRequired, "the session is bound to a key; send a DPoP proof (RFC 9449) with each request").
			Audited(fault.ReasonProofRequired)
	}
	proof, err := m.verifyProof(p, token, h.record.BoundKey)
	if err != nil {
		return err
	}
	return m.proofs.use(ctx, acting(h.record.Principal, h.record.Actor), proof, m.Clock())
}

// checkBinding checks that a request uses the client certificate and the key that its session is bound to.
func (m *Manager) checkBinding(ctx context.Context, h *held, token string, p Proof) error {
	if bound := h.record.BoundCertificate; len(bound) > 0 {
		if digest := keyserver.DigestOf(p.Certificate); p.Certificate == nil || !bytes.Equal(bound, digest[:]) {
			return errCertificateMismatch
		}
	}
	return m.checkProof(ctx, h, token, p)
}

var errCertificateMismatch = fault.New(fault.CertificateMismatch, "the session is bound to a client certificate that this connection did not present; "+
	"connect with that certificate, or log in again with the present one").Audited(fault.ReasonCertificateMismatch)

// acting returns the principal that acts in a session: the actor if there is one, otherwise the principal.
func acting(principal, actor keyserver.PrincipalRef) keyserver.ID {
	if !actor.ID.IsZero() {
		return actor.ID
	}
	return principal.ID
}

// loginProof verifies the proof of a login; it returns nil if there is none. The proof is stored as used only at the
// end of a successful login, so that clients without credentials cannot fill the replay cache.
func (m *Manager) loginProof(p Proof) (*dpop.Proof, error) {
	if len(p.Sent) == 0 {
		return nil, nil
	}
	proof, err := m.verifyProof(p, "", "")
	if err != nil {
		m.meter.proof(err)
		return nil, err
	}
	return &proof, nil
}

func (m *Manager) verifyProof(p Proof, token, key string) (dpop.Proof, error) {
	if len(p.Sent) > 1 {
		return dpop.Proof{}, fault.New(fault.ProofMalformed, "the request has more than one DPoP header; send one").Audited(fault.ReasonProofMalformed)
	}
	return dpop.Verify(p.Sent[0], dpop.Request{Method: p.Method, Site: p.Site, Path: p.Path, Token: token, Key: key, Now: m.Clock()})
}

// refuseProof writes a durable audit row for a refused proof and returns the refusal. The row is needed because the
// session id may be stolen. Errors without a reason are not decisions about the proof and get no row.
func (m *Manager) refuseProof(ctx context.Context, h *held, from From, refusal error) error {
	f := fault.As(refusal)
	if f == nil || f.Reason == "" {
		return refusal
	}
	err := m.Audit.Write(ctx, keyserver.AuditEntry{
		Operation: keyserver.AuditProof, Outcome: keyserver.Refused, Reason: string(f.Reason), Principal: h.caller.Principal,
		Object: h.caller.Name, Kind: h.caller.Kind, RequestID: from.RequestID, Actor: h.caller.Actor,
		Address: from.Address, Session: h.caller.Session, For: from.For,
	})
	if err != nil {
		return err
	}
	return refusal
}
