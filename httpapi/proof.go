package httpapi

import (
	"net/http"

	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// proofScheme is the WWW-Authenticate challenge if a DPoP proof is required.
const proofScheme = `DPoP realm="keyserver", algs="` + session.ProofAlgorithms + `"`

// proofErrors maps each code for a refused proof to its error in RFC 9449 section 7.1.
var proofErrors = map[fault.Code]string{
	fault.ProofRequired:         "invalid_dpop_proof",
	fault.ProofInvalidSignature: "invalid_dpop_proof",
	fault.ProofKeyMismatch:      "invalid_token",
	fault.ProofMethodMismatch:   "invalid_dpop_proof",
	fault.ProofURIMismatch:      "invalid_dpop_proof",
	fault.ProofTokenMismatch:    "invalid_dpop_proof",
	fault.ProofStale:            "invalid_dpop_proof",
	fault.ProofReplayed:         "invalid_dpop_proof",
}

// proof returns the DPoP proof of the request, the values that the proof must match, and the client certificate of the
// connection.
func (a *API) proof(r *http.Request) session.Proof {
	var certificate []byte
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		certificate = r.TLS.PeerCertificates[0].Raw
	}
	sent := r.Header["Dpop"] // net/http converts header names to this form
	if len(sent) == 0 {
		return session.Proof{Certificate: certificate}
	}
	return session.Proof{Sent: sent, Method: r.Method, Site: a.Site, Path: r.URL.EscapedPath(), Certificate: certificate}
}
