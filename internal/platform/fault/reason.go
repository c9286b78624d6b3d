package fault

// Reason is the code that the audit log records for an operation that was refused or
// failed.
type Reason string

// ReasonEntry is one row of the catalogue of audit reasons.
type ReasonEntry struct {
	Reason  Reason
	Meaning string // one sentence, for readers of the audit log
}

// Reasons lists every reason that the audit log records, in the order below.
var Reasons []ReasonEntry

func reason(r Reason, meaning string) Reason {
	Reasons = append(Reasons, ReasonEntry{r, meaning})
	return r
}

// The audit reasons with their meanings, in camelCase and permanent (contract 18.4):
// audit rows are stored, and queried by reason.
var (
	ReasonRoleDenied          = reason("roleDenied", "No role of the caller grants the operation.")
	ReasonACLDenied           = reason("aclDenied", "The access control list of the key refuses the caller, by its rights, its time or its limit of uses.")
	ReasonKeyDisabled         = reason("keyDisabled", "The state of the key does not allow the use.")
	ReasonKeyExhausted        = reason("keyExhausted", "The key has encrypted as much as one key may.")
	ReasonObjectNotFound      = reason("objectNotFound", "What the operation is about does not exist.")
	ReasonNotInScope          = reason("notInScope", "A scoped credential was used for something that it does not name.")
	ReasonPrincipalDisabled   = reason("principalDisabled", "The principal is disabled.")
	ReasonDelegator           = reason("delegatorRefused", "The delegator may not be acted for, or does not exist.")
	ReasonChained             = reason("chainedDelegation", "A delegated session asked for another.")
	ReasonNotTransport        = reason("notTransportPrincipal", "The operation is for callers that logged in with an enrolled certificate.")
	ReasonNotExposed          = reason("notExposed", "No principal trust exposes the caller to the peer that owns the object.")
	ReasonRestricted          = reason("restricted", "The principal of a peer is restricted here.")
	ReasonNotForwarded        = reason("notForwarded", "A peer asked for what is not done for peers.")
	ReasonPeerUnavailable     = reason("peerUnavailable", "The peer could not be asked, or did not answer.")
	ReasonBadCredentials      = reason("badCredentials", "The login did not show who it is from.")
	ReasonThrottled           = reason("throttled", "Too many logins failed for the name or the address.")
	ReasonProviderUnavailable = reason("identityProviderUnavailable", "Nobody could say whether the login is good.")
	ReasonBuiltIn             = reason("builtIn", "The object is system-defined and cannot be changed.")
	ReasonProofMalformed      = reason("proofMalformed", "The DPoP proof is not one as RFC 9449 has it.")
	ReasonProofRequired       = reason("proofRequired", "The session is bound to a key, and the request had no DPoP proof: perhaps a stolen session id. Of a login: it would have opened a session that is bound to nothing.")
	ReasonProofSignature      = reason("proofInvalidSignature", "The signature of the DPoP proof is not by the key in its header.")
	ReasonProofKey            = reason("proofKeyMismatch", "The DPoP proof is by another key than the session's, or the session is bound to none.")
	ReasonProofMethod         = reason("proofMethodMismatch", "The DPoP proof is for another method.")
	ReasonProofURI            = reason("proofUriMismatch", "The DPoP proof is for another URL.")
	ReasonProofToken          = reason("proofTokenMismatch", "The DPoP proof is for another session id.")
	ReasonProofStale          = reason("proofStale", "The DPoP proof was made too long ago, or in the future.")
	ReasonProofReplayed       = reason("proofReplayed", "The DPoP proof was used before.")
	ReasonRevoked             = reason("certificateRevoked", "Revocation evidence names the session's certificate.")
	ReasonCertificateMismatch = reason("certificateMismatch", "The connection did not bring the client certificate that the session is bound to: perhaps a stolen session id.")
	ReasonNoEvidence          = reason("revocationStatusUnavailable", "The issuer's policy requires revocation evidence, and there is none.")
	ReasonStaleEvidence       = reason("revocationEvidenceStale", "The issuer's policy requires current revocation evidence, and what there is has aged out.")
	ReasonCertificateEnded    = reason("certificateNotCurrent", "The certificate is not in force, or not enrolled any more.")
	ReasonNoCertificate       = reason("noCertificate", "The connection brought no certificate.")
	ReasonNotEnrolled         = reason("notEnrolled", "The certificate of the connection is enrolled for nobody.")
	ReasonIssuerUntrusted     = reason("issuerNotTrusted", "The CA that issued the certificate is not trusted any more.")
	ReasonInUse               = reason("inUse", "Another object needs the one to be deleted.")
	ReasonInvalidArgument     = reason("invalidArgument", "The key server refused an argument.")
	ReasonBadMessage          = reason("badMessage", "The message to be authenticated could not be read to its end.")
	ReasonLimit               = reason("limit", "A limit of the key server is reached.")
	ReasonEscalation          = reason("escalation", "The change would have given an operation, or a right on a key, that the caller does not hold.")
	ReasonDutiesConflict      = reason("dutiesConflict", "The change would have given a principal two duties that are apart.")
	ReasonNotLent             = reason("notLent", "A delegated session was used for another duty than the use of keys.")
	ReasonStoreTampered       = reason("storeTampered", "What the database holds about an object was not written by this key server.")
	ReasonApprovalRequired    = reason("approvalRequired", "The operation takes an approval, and the caller had none for it.")
	ReasonNotApprovable       = reason("notApprovable", "The approval was asked to do what its state, its digest or its asker rule out.")
	ReasonNotBound            = reason("sessionNotBound", "Somebody approved or rejected in a session that is bound to no key.")
	ReasonAuthorityState      = reason("authorityState", "The authorities of the key server were not in a state for the change.")
	ReasonOwned               = reason("owned", "The owner mark of the object is not held by whom the change of it expects.")
	ReasonNotExportable       = reason("notExportable", "The key was minted to stay in the key server.")
	ReasonKeyState            = reason("keyState", "The state of the key ruled a change of it out.")
	ReasonLogForked           = reason("logForked", "A log that is witnessed does not continue what was cosigned: it was changed, or there are two of it.")
	ReasonLogRolledBack       = reason("logRolledBack", "A log that is witnessed has fewer rows than were cosigned: its database was put back, or rows were cut off.")
	ReasonLogForged           = reason("logForged", "A checkpoint of a log that is witnessed was not signed by its key.")
	ReasonLogKeyChanged       = reason("logKeyChanged", "A peer names another key of its audit tree than when it was first asked.")
	ReasonFailed              = reason("failed", "The key server failed; the log has the cause under the request id.")
)
