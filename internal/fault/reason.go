package fault

// Reason is the coded cause that the audit trail records for an operation that
// was refused or failed.
type Reason string

// The audit reasons, in camelCase and permanent (contract 18.4): the rows of a
// trail are kept, and asked for by reason.
const (
	ReasonRoleDenied          Reason = "roleDenied"
	ReasonACLDenied           Reason = "aclDenied"
	ReasonObjectNotFound      Reason = "objectNotFound"
	ReasonNotInScope          Reason = "notInScope"
	ReasonPrincipalDisabled   Reason = "principalDisabled"
	ReasonDelegator           Reason = "delegatorRefused"
	ReasonChained             Reason = "chainedDelegation" // a delegated session asked for another
	ReasonNotTransport        Reason = "notTransportPrincipal"
	ReasonNotExposed          Reason = "notExposed"      // the principal is not exposed to the peer that owns the object
	ReasonRestricted          Reason = "restricted"      // the principal of a peer is restricted here
	ReasonNotForwarded        Reason = "notForwarded"    // a peer asked for what is not done for peers
	ReasonPeerUnavailable     Reason = "peerUnavailable" // the peer could not be asked, or did not answer
	ReasonBadCredentials      Reason = "badCredentials"
	ReasonThrottled           Reason = "throttled"
	ReasonProviderUnavailable Reason = "identityProviderUnavailable"
	ReasonBuiltIn             Reason = "builtIn"
	ReasonProofMalformed      Reason = "proofMalformed"
	ReasonProofRequired       Reason = "proofRequired"
	ReasonProofSignature      Reason = "proofInvalidSignature"
	ReasonProofKey            Reason = "proofKeyMismatch"
	ReasonProofMethod         Reason = "proofMethodMismatch"
	ReasonProofURI            Reason = "proofUriMismatch"
	ReasonProofToken          Reason = "proofTokenMismatch"
	ReasonProofStale          Reason = "proofStale"
	ReasonProofReplayed       Reason = "proofReplayed"
	ReasonRevoked             Reason = "certificateRevoked"
	ReasonNoEvidence          Reason = "revocationStatusUnavailable"
	ReasonStaleEvidence       Reason = "revocationEvidenceStale"
	ReasonCertificateEnded    Reason = "certificateNotCurrent"
	ReasonNoCertificate       Reason = "noCertificate"    // the connection brought none
	ReasonNotEnrolled         Reason = "notEnrolled"      // its certificate is enrolled for nobody
	ReasonIssuerUntrusted     Reason = "issuerNotTrusted" // the CA that issued it was removed
	ReasonInUse               Reason = "inUse"
	ReasonInvalidArgument     Reason = "invalidArgument"
	ReasonBadMessage          Reason = "badMessage"
	ReasonLimit               Reason = "limit"
	ReasonFailed              Reason = "failed"
)

// ReasonEntry is one row of the catalogue of audit reasons.
type ReasonEntry struct {
	Reason  Reason
	Meaning string // one sentence, for whoever reads a trail
}

// Reasons lists every reason that the audit trail records.
var Reasons = []ReasonEntry{
	{ReasonRoleDenied, "No role of the caller grants the operation."},
	{ReasonACLDenied, "The access control list of the key refuses the caller, by its rights, its time or its limit of uses."},
	{ReasonObjectNotFound, "What the operation is about does not exist."},
	{ReasonNotInScope, "A scoped credential was used for something that it does not name."},
	{ReasonPrincipalDisabled, "The principal is disabled."},
	{ReasonDelegator, "The delegator may not be acted for, or does not exist."},
	{ReasonChained, "A delegated session asked for another."},
	{ReasonNotTransport, "The operation is for callers that logged in with an enrolled certificate."},
	{ReasonNotExposed, "No principal trust exposes the caller to the peer that owns the object."},
	{ReasonRestricted, "The principal of a peer is restricted here."},
	{ReasonNotForwarded, "A peer asked for what is not done for peers."},
	{ReasonPeerUnavailable, "The peer could not be asked, or did not answer."},
	{ReasonBadCredentials, "The login did not show who it is from."},
	{ReasonThrottled, "Too many logins failed for the name or the address."},
	{ReasonProviderUnavailable, "Nobody could say whether the login is good."},
	{ReasonBuiltIn, "The object is system-defined and cannot be changed."},
	{ReasonProofMalformed, "The DPoP proof is not one as RFC 9449 has it."},
	{ReasonProofRequired, "The session is bound to a key, and the request had no DPoP proof: perhaps a stolen session id."},
	{ReasonProofSignature, "The signature of the DPoP proof is not by the key in its header."},
	{ReasonProofKey, "The DPoP proof is by another key than the session's, or the session is bound to none."},
	{ReasonProofMethod, "The DPoP proof is for another method."},
	{ReasonProofURI, "The DPoP proof is for another URL."},
	{ReasonProofToken, "The DPoP proof is for another session id."},
	{ReasonProofStale, "The DPoP proof was made too long ago, or in the future."},
	{ReasonProofReplayed, "The DPoP proof was used before."},
	{ReasonRevoked, "Revocation evidence names the session's certificate."},
	{ReasonNoEvidence, "The issuer's policy requires revocation evidence, and there is none."},
	{ReasonStaleEvidence, "The issuer's policy requires current revocation evidence, and what there is has aged out."},
	{ReasonCertificateEnded, "The certificate is not in force, or not enrolled any more."},
	{ReasonNoCertificate, "The connection brought no certificate."},
	{ReasonNotEnrolled, "The certificate of the connection is enrolled for nobody."},
	{ReasonIssuerUntrusted, "The CA that issued the certificate is not trusted any more."},
	{ReasonInUse, "Another object needs the one to be deleted."},
	{ReasonInvalidArgument, "The key server refused an argument."},
	{ReasonBadMessage, "The message to be authenticated could not be read to its end."},
	{ReasonLimit, "A limit of the key server is reached."},
	{ReasonFailed, "The key server failed; the log has the cause under the request id."},
}
