package fault

// Reason is the reason in the audit row of a refused or failed operation.
type Reason string

// ReasonEntry is one row of the catalogue of audit reasons.
type ReasonEntry struct {
	Reason  Reason
	Meaning string // one sentence for readers of the audit log
}

// Reasons contains every reason in the audit log, in the order of the declarations below.
var Reasons []ReasonEntry

func reason(r Reason, meaning string) Reason {
	Reasons = append(Reasons, ReasonEntry{r, meaning})
	return r
}

// The audit reasons with their meanings. They are in camelCase and never change (contract 18.4), because audit rows are
// stored and are queried by reason.
var (
	ReasonRoleDenied          = reason("roleDenied", "No role of the caller grants the operation.")
	ReasonACLDenied           = reason("aclDenied", "The ACL of the key denies the caller, by its rights, its time window or its usage limit.")
	ReasonKeyDisabled         = reason("keyDisabled", "The state of the key does not allow the use.")
	ReasonKeyExhausted        = reason("keyExhausted", "The key reached its limit for encryption.")
	ReasonObjectNotFound      = reason("objectNotFound", "The object of the operation does not exist.")
	ReasonNotInScope          = reason("notInScope", "A scoped credential was used for an object or operation that it does not cover.")
	ReasonPrincipalDisabled   = reason("principalDisabled", "The principal is disabled.")
	ReasonDelegator           = reason("delegatorRefused", "The delegator does not exist, or acting for it is not allowed.")
	ReasonChained             = reason("chainedDelegation", "A delegated session requested another delegated session.")
	ReasonNotTransport        = reason("notTransportPrincipal", "Only callers that logged in with an enrolled certificate may perform the operation.")
	ReasonNotExposed          = reason("notExposed", "No principal trust exposes the caller to the peer that owns the object.")
	ReasonRestricted          = reason("restricted", "A principal trust restricts the principal of a peer here.")
	ReasonNotForwarded        = reason("notForwarded", "A peer requested an operation that is not performed for peers.")
	ReasonPeerUnavailable     = reason("peerUnavailable", "The peer could not be reached or did not respond.")
	ReasonBadCredentials      = reason("badCredentials", "The login did not prove an identity.")
	ReasonThrottled           = reason("throttled", "Too many logins failed for the name or the address.")
	ReasonProviderUnavailable = reason("identityProviderUnavailable", "The identity provider was not available to check the login.")
	ReasonBuiltIn             = reason("builtIn", "The object is system-defined and cannot be changed.")
	ReasonProofMalformed      = reason("proofMalformed", "The DPoP proof does not have the format of RFC 9449.")
	ReasonProofRequired       = reason("proofRequired", "The session is bound to a key, but the request had no DPoP proof: perhaps a stolen session id. For a login: only bound sessions are allowed, and the login had no proof.")
	ReasonProofSignature      = reason("proofInvalidSignature", "The signature of the DPoP proof is not by the key in its header.")
	ReasonProofKey            = reason("proofKeyMismatch", "The DPoP proof is by another key than that of the session, or the session is not bound to a key.")
	ReasonProofMethod         = reason("proofMethodMismatch", "The DPoP proof is for another method than that of the request (htm).")
	ReasonProofURI            = reason("proofUriMismatch", "The DPoP proof is for another URL than that of the request (htu).")
	ReasonProofToken          = reason("proofTokenMismatch", "The DPoP proof is for another session id than that of the request (ath).")
	ReasonProofStale          = reason("proofStale", "The DPoP proof is too old, or its time is in the future.")
	ReasonProofReplayed       = reason("proofReplayed", "The DPoP proof was used before.")
	ReasonRevoked             = reason("certificateRevoked", "The session's certificate is revoked.")
	ReasonCertificateMismatch = reason("certificateMismatch", "The connection did not have the client certificate that the session is bound to: perhaps a stolen session id.")
	ReasonNoEvidence          = reason("revocationStatusUnavailable", "The policy of the issuer requires a CRL, but there is none.")
	ReasonStaleEvidence       = reason("revocationEvidenceStale", "The policy of the issuer requires a current CRL, but the CRL is too old.")
	ReasonCertificateEnded    = reason("certificateNotCurrent", "The certificate is not valid at this time, or no longer enrolled.")
	ReasonNoCertificate       = reason("noCertificate", "The connection had no certificate.")
	ReasonNotEnrolled         = reason("notEnrolled", "The certificate of the connection is not enrolled for any principal.")
	ReasonIssuerUntrusted     = reason("issuerNotTrusted", "The CA that issued the certificate is no longer trusted.")
	ReasonInUse               = reason("inUse", "Another object needs the object to be deleted.")
	ReasonInvalidArgument     = reason("invalidArgument", "The key server refused an argument.")
	ReasonBadMessage          = reason("badMessage", "The message for the MAC could not be read completely.")
	ReasonLimit               = reason("limit", "A limit of the key server was reached.")
	ReasonEscalation          = reason("escalation", "The change would have granted an operation, or a right on a key, that the caller does not have.")
	ReasonDutiesConflict      = reason("dutiesConflict", "The change would have given a principal two duties that must be separate.")
	ReasonNotLent             = reason("notLent", "A delegated session was used for an operation other than the use of keys.")
	ReasonStoreTampered       = reason("storeTampered", "The database row of an object was not written by this key server.")
	ReasonApprovalRequired    = reason("approvalRequired", "The operation needs an approval, and the caller had none for it.")
	ReasonNotApprovable       = reason("notApprovable", "The state, the digest or the requester of the approval does not allow the action.")
	ReasonNotBound            = reason("sessionNotBound", "A caller approved or rejected in a session that is not bound to a key.")
	ReasonAuthorityState      = reason("authorityState", "The state of the internal CAs did not allow the change.")
	ReasonOwned               = reason("owned", "The owner mark of the object is not the expected one.")
	ReasonNotExportable       = reason("notExportable", "The key was created as not exportable.")
	ReasonKeyState            = reason("keyState", "The state of the key did not allow the change.")
	ReasonLogForked           = reason("logForked", "A witnessed log does not continue the cosigned checkpoint: rows were changed, or two versions of the log exist.")
	ReasonLogRolledBack       = reason("logRolledBack", "A witnessed log has fewer rows than the cosigned checkpoint: its database was restored to an older state, or rows were deleted.")
	ReasonLogForged           = reason("logForged", "A checkpoint of a witnessed log was not signed by the log's key.")
	ReasonLogKeyChanged       = reason("logKeyChanged", "A peer reports another key of its audit tree than at the first request.")
	ReasonFailed              = reason("failed", "The key server failed; the log has the cause under the request id.")
)
