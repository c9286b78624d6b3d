package httpapi

import (
	"net/http"

	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// proofScheme is the challenge if a proof of a key is required.
const proofScheme = `DPoP realm="keyserver", algs="` + session.ProofAlgorithms + `"`

// proofErrors has the error of RFC 9449 section 7.1 for each refusal of a proof.
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

// proof returns the proof of the request, the values that it must match, and the
// certificate of the connection.
func (a *API) proof(r *http.Request) session.Proof {
	var certificate []byte
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		certificate = r.TLS.PeerCertificates[0].Raw
	}
	sent := r.Header["Dpop"] // the spelling of net/http
	if len(sent) == 0 {
		return session.Proof{Certificate: certificate}
	}
	return session.Proof{Sent: sent, Method: r.Method, Site: a.Site, Path: r.URL.EscapedPath(), Certificate: certificate}
}
