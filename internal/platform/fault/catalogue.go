package fault

// Code identifies a fault to clients (contract 1.9). The text of a detail may change, but
// a code may not.
type Code string

// Entry is one row of the catalogue of codes.
type Entry struct {
	Code      Code
	Extension bool   // beyond the core (contract 1.2)
	Meaning   string // one sentence for the generated reference
}

// Catalogue lists every code that this service returns, in the order below. Package
// httpapi maps each to a status, and a test checks the list.
var Catalogue []Entry

// code adds a code of the core (contract 22.2) to the catalogue.
func code(c Code, meaning string) Code {
	Catalogue = append(Catalogue, Entry{c, false, meaning})
	return c
}

// extension adds a code beyond the core to the catalogue, for a case that the core does
// not define. docs/api.md marks these codes.
func extension(c Code, meaning string) Code {
	Catalogue = append(Catalogue, Entry{c, true, meaning})
	return c
}

// The codes with their meanings.
var (
	BadRequest             = code("BAD_REQUEST", "Refused before anything reached the key server; detail names the field.")
	InvalidArgument        = code("INVALID_ARGUMENT", "The key server itself refused the argument; detail is its sentence.")
	SessionNotFound        = code("SESSION_NOT_FOUND", "The credential names no live session; log in again.")
	SessionExpired         = code("SESSION_EXPIRED", "The session reached its idle or absolute lifetime; log in again.")
	ScopedExpired          = code("SCOPED_CREDENTIAL_EXPIRED", "The scoped credential reached the end of its fixed lifetime; have a new one made.")
	ProofMalformed         = code("PROOF_MALFORMED", "The DPoP proof is not one as RFC 9449 has it; detail names the part.")
	ProofRequired          = code("PROOF_REQUIRED", "The session is bound to a key and the request has no DPoP proof; or a login has none, and the service opens no session that is bound to nothing.")
	ProofInvalidSignature  = code("PROOF_INVALID_SIGNATURE", "The signature of the DPoP proof is not by the key in its header.")
	ProofKeyMismatch       = code("PROOF_KEY_MISMATCH", "The DPoP proof is by another key than the session's, or the session is bound to none.")
	ProofMethodMismatch    = code("PROOF_METHOD_MISMATCH", "The DPoP proof is for another method (htm).")
	ProofURIMismatch       = code("PROOF_URI_MISMATCH", "The DPoP proof is for another URL (htu).")
	ProofTokenMismatch     = code("PROOF_TOKEN_MISMATCH", "The DPoP proof is for another session id (ath).")
	ProofStale             = code("PROOF_STALE", "The time of the DPoP proof (iat) is too far from now; make a new one.")
	ProofReplayed          = code("PROOF_REPLAYED", "The DPoP proof was used before (jti); make a new one for each request.")
	ProofCacheFull         = code("PROOF_REPLAY_CACHE_FULL", "The process remembers as many used proofs as it may, and forgets none that could be used again.")
	CertificateRevoked     = code("CERTIFICATE_REVOKED", "Revocation evidence names the session's certificate; log in with another one.")
	CertificateMismatch    = extension("CERTIFICATE_MISMATCH", "The session is bound to a client certificate that the connection did not bring; connect with it, or log in with the one that there is now.")
	RevocationUnavailable  = code("REVOCATION_STATUS_UNAVAILABLE", "The issuer's policy requires revocation evidence and there is none; import the issuer's CRL.")
	RevocationStale        = code("REVOCATION_EVIDENCE_STALE", "The issuer's policy requires current revocation evidence and what there is has aged out; import the issuer's current CRL.")
	AccessDenied           = code("ACCESS_DENIED", "No role of the caller grants the operation.")
	ACLDenied              = code("ACL_DENIED", "The access control list of the key refuses the caller; ask the key's owner.")
	KeyDisabled            = extension("KEY_DISABLED", "The state of the key does not allow this use; its owner can say what became of it.")
	KeyExhausted           = extension("KEY_EXHAUSTED", "The key has encrypted as much as one key may; rotate it, and name the line. What it has encrypted can still be decrypted.")
	PrincipalOff           = code("PRINCIPAL_DISABLED", "The caller's principal is disabled.")
	DelegatorRefused       = code("DELEGATOR_REFUSED", "The delegator of the session is disabled, lost its delegation flag, is enrolled no more, or its certificate is revoked; an administrator has to restore it.")
	NotInScope             = code("OBJECT_NOT_IN_CREDENTIAL_SCOPE", "The object is outside the scoped credential.")
	NotWritable            = code("NOT_WRITABLE", "Only a member that holds WRITE may change the object; nothing was sent.")
	BuiltIn                = code("BUILT_IN", "A system-defined role is read-only.")
	BuiltInPrincipal       = code("BUILT_IN_PRINCIPAL", "A system-defined principal: the key server would skip the update and report success, so nothing was sent.")
	OwnAccount             = code("OWN_ACCOUNT", "The target is the caller's own principal; another administrator has to do it. Nothing was sent.")
	NoFlagWord             = code("NO_FLAG_WORD", "Principals of that type have no flags; nothing was sent.")
	Escalation             = extension("ESCALATION", "The change gives an operation, or a right on a key, that the caller does not hold; detail names it. Nothing was changed.")
	DutiesConflict         = extension("DUTIES_CONFLICT", "A principal would hold two duties that are apart in this deployment; detail names an operation of each. Nothing was changed.")
	ApprovalRequired       = extension("APPROVAL_REQUIRED", "A rule of the approval policy guards the operation; detail names it. Ask with POST /api/approvals. Nothing was changed.")
	SessionNotBound        = extension("SESSION_NOT_BOUND", "Who approves or rejects needs a session that is bound to a key: log in with a DPoP proof or a client certificate.")
	DigestMismatch         = extension("DIGEST_MISMATCH", "The digest is not that of the request that is to be approved; read the approval again.")
	ApprovalState          = extension("APPROVAL_STATE", "The approval is not in a state for this: it lacks approvers, or was rejected, executed or not executed in time, or the caller has approved already.")
	AuthorityState         = extension("AUTHORITY_STATE", "The authorities of the key server are not in a state for this: one is prepared already, none is, it has not been for long enough, or it is the active one; detail says what to do. Nothing was changed.")
	ApprovalLimit          = extension("APPROVAL_LIMIT", "As many approvals are pending as may be, of the asker or in all.")
	KeyNotExportable       = extension("KEY_NOT_EXPORTABLE", "The key was minted to stay in the key server, which is for good.")
	KeyState               = extension("KEY_STATE", "The state of the key rules the change out; detail says which it is. Nothing was changed.")
	KeyNotFound            = code("KEY_NOT_FOUND", "The hidden link names no key.")
	NotFound               = code("NOT_FOUND", "No such object, or no such path.")
	NotTrusted             = code("NOT_TRUSTED", "No trusted CA has that certificate id.")
	Archived               = extension("ARCHIVED", "The rows that are asked for are not in the database any more; detail names the segment of the audit archive that has them.")
	ACLNotFound            = code("ACL_NOT_FOUND", "The key, its access control list or the entry to amend does not exist; nothing was changed.")
	AlreadyTrusted         = code("ALREADY_TRUSTED", "The CA is in the trusted list already; nothing was sent.")
	NotSaved               = code("NOT_SAVED", "The write was accepted, but reading it back does not show it.")
	NotRemoved             = code("NOT_REMOVED", "The removal was accepted, but reading the list back still shows the object.")
	NotPersisted           = code("NOT_PERSISTED", "The write was accepted, but a fresh read does not show it.")
	NotVerified            = code("NOT_VERIFIED", "The access control list does not show the requested rights when read back.")
	NoSavedRequest         = code("NO_SAVED_REQUEST", "The certificate was not issued here, so there is no request to issue it anew from; reset its transport principal and enrol a fresh one.")
	OpFailed               = code("OP_FAILED", "The key server failed in a way that has no code of its own; the log has the cause under the request id.")
	ReadbackFailed         = code("READBACK_FAILED", "The write was sent, but reading it back failed, so its effect is unknown.")
	RequestLimit           = code("REQUEST_LIMIT", "The session has too many requests in flight.")
	SessionLimit           = code("SESSION_LIMIT", "The process holds as many sessions as it may.")
	Overloaded             = code("OVERLOADED", "The process has as much work queued as it may.")
	BuildNotAdmitted       = code("BUILD_NOT_ADMITTED", "The key server does not admit this build of the service, because its release manifest is refused; detail names the cause. It is looked at again by itself.")
	MethodNotAllowed       = extension("METHOD_NOT_ALLOWED", "The path exists, the method does not; Allow lists those that do.")
	InvalidCredentials     = extension("INVALID_CREDENTIALS", "The login failed; the answer is the same whatever the cause.")
	LoginThrottled         = extension("LOGIN_THROTTLED", "Too many failed logins for this name or address; wait as Retry-After says.")
	Owned                  = extension("OWNED", "Somebody else holds the owner mark of the object, or nobody does where somebody was expected to; owner says who. Nothing was changed.")
	InUse                  = extension("IN_USE", "Another object needs this one; delete that first.")
	RewrapRunning          = extension("REWRAP_RUNNING", "Keys are still being wrapped under the newest data key; another one is made when that has ended. Nothing was changed.")
	NoPassword             = extension("NO_PASSWORD", "Principals of that type have no password here; nothing was sent.")
	LastWriter             = extension("LAST_WRITER", "The change would leave nobody who can change the object for good; nothing was sent.")
	AlreadyExists          = extension("ALREADY_EXISTS", "The name is taken; nothing was sent.")
	PayloadTooLarge        = extension("PAYLOAD_TOO_LARGE", "The request body is over the route's limit.")
	UnsupportedEncoding    = extension("UNSUPPORTED_ENCODING", "The request body has a Content-Encoding; bodies are taken as they are, without one.")
	RequestTimeout         = extension("REQUEST_TIMEOUT", "The route's time limit passed before the work was done.")
	AuditUnavailable       = extension("AUDIT_UNAVAILABLE", "No audit row could be written, so the operation was refused.")
	StoreUnavailable       = extension("STORE_UNAVAILABLE", "The database does not answer.")
	StoreTampered          = extension("STORE_TAMPERED", "What the database holds about an object was not written by this key server, so that it is not used; an operator has to look at it.")
	CheckpointUnsigned     = extension("CHECKPOINT_UNSIGNED", "What was sent to be cosigned is no checkpoint that the key of its log has signed.")
	CheckpointInconsistent = extension("CHECKPOINT_INCONSISTENT", "The checkpoint does not continue the one that was cosigned last, or its proof does not say so.")
	NotReady               = extension("NOT_READY", "A part of the service is not ready; parts names it and says when it retries.")
	NotCurrent             = extension("NOT_CURRENT", "This replica cannot confirm that its state is current, so it refuses rather than guess.")
	ProviderUnavailable    = extension("IDENTITY_PROVIDER_UNAVAILABLE", "The identity provider that the login is for, the issuer, the cluster or the directory, cannot be asked now.")
	PeerUnavailable        = extension("PEER_UNAVAILABLE", "The key server that owns the object cannot be asked now. No list was changed there; a use may have been counted, and asking again may count another.")
	PeerNoAnswer           = extension("PEER_NO_ANSWER", "The key server that owns the object was sent a change and did not say what became of it, so it may have taken effect; read the object before trying again.")
)
