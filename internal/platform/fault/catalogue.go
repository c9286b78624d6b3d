package fault

// Code identifies a fault for clients (contract 1.9). The text of a detail may change, but a code may not.
type Code string

// Entry is one row of the catalogue of codes.
type Entry struct {
	Code      Code
	Extension bool   // not one of the core codes of the API contract (contract 1.2)
	Meaning   string // one sentence for the generated reference
}

// Catalogue contains every code that this service returns, in the order of the declarations below. Package httpapi maps
// each code to an HTTP status, and a test checks that mapping.
var Catalogue []Entry

// code adds a code of the API contract (contract 22.2) to the catalogue.
func code(c Code, meaning string) Code {
	Catalogue = append(Catalogue, Entry{c, false, meaning})
	return c
}

// extension adds a code to the catalogue for a case that the contract does not define. docs/api.md marks these codes.
func extension(c Code, meaning string) Code {
	Catalogue = append(Catalogue, Entry{c, true, meaning})
	return c
}

// The codes with their meanings.
var (
	BadRequest             = code("BAD_REQUEST", "The request is invalid and was refused before the key server received it; detail names the field.")
	InvalidArgument        = code("INVALID_ARGUMENT", "The key server refused the argument; detail contains its message.")
	SessionNotFound        = code("SESSION_NOT_FOUND", "The credential does not name a valid session; log in again.")
	SessionExpired         = code("SESSION_EXPIRED", "The session reached its idle or absolute lifetime; log in again.")
	ScopedExpired          = code("SCOPED_CREDENTIAL_EXPIRED", "The scoped credential reached the end of its fixed lifetime; get a new one.")
	ProofMalformed         = code("PROOF_MALFORMED", "The DPoP proof does not have the format of RFC 9449; detail names the part.")
	ProofRequired          = code("PROOF_REQUIRED", "The session is bound to a key, but the request has no DPoP proof. For a login: the service opens only bound sessions, and the login has no proof.")
	ProofInvalidSignature  = code("PROOF_INVALID_SIGNATURE", "The signature of the DPoP proof is not by the key in its header.")
	ProofKeyMismatch       = code("PROOF_KEY_MISMATCH", "The DPoP proof is by another key than that of the session, or the session is not bound to a key.")
	ProofMethodMismatch    = code("PROOF_METHOD_MISMATCH", "The DPoP proof is for another method than that of the request (htm).")
	ProofURIMismatch       = code("PROOF_URI_MISMATCH", "The DPoP proof is for another URL than that of the request (htu).")
	ProofTokenMismatch     = code("PROOF_TOKEN_MISMATCH", "The DPoP proof is for another session id than that of the request (ath).")
	ProofStale             = code("PROOF_STALE", "The time of the DPoP proof (iat) differs too much from the present time; create a new proof.")
	ProofReplayed          = code("PROOF_REPLAYED", "The DPoP proof was used before (jti); create a new proof for each request.")
	ProofCacheFull         = code("PROOF_REPLAY_CACHE_FULL", "The replay cache for DPoP proofs is full, for the principal or the process; send fewer requests per second.")
	CertificateRevoked     = code("CERTIFICATE_REVOKED", "The session's certificate is revoked; log in with another one.")
	CertificateMismatch    = extension("CERTIFICATE_MISMATCH", "The session is bound to a client certificate that the connection does not have; connect with that certificate, or log in with the present one.")
	RevocationUnavailable  = code("REVOCATION_STATUS_UNAVAILABLE", "The policy of the issuer requires a CRL, but there is none; import the issuer's CRL.")
	RevocationStale        = code("REVOCATION_EVIDENCE_STALE", "The policy of the issuer requires a current CRL, but the CRL is too old; import the issuer's current CRL.")
	AccessDenied           = code("ACCESS_DENIED", "No role of the caller grants the operation.")
	ACLDenied              = code("ACL_DENIED", "The ACL of the key denies the caller; ask a key owner.")
	KeyDisabled            = extension("KEY_DISABLED", "The state of the key does not allow this use; ask a key owner.")
	KeyExhausted           = extension("KEY_EXHAUSTED", "The key reached its limit for encryption; rotate it, and name the lineage in requests. Its ciphertexts can still be decrypted.")
	PrincipalOff           = code("PRINCIPAL_DISABLED", "The caller's principal is disabled.")
	DelegatorRefused       = code("DELEGATOR_REFUSED", "The delegator of the session is disabled, lost its delegation flag, is no longer enrolled, or its certificate is revoked; ask an administrator to restore it.")
	NotInScope             = code("OBJECT_NOT_IN_CREDENTIAL_SCOPE", "The scoped credential does not cover the object.")
	NotWritable            = code("NOT_WRITABLE", "Only a member with WRITE may change the object; nothing was sent.")
	BuiltIn                = code("BUILT_IN", "The role is system-defined and therefore read-only.")
	BuiltInPrincipal       = code("BUILT_IN_PRINCIPAL", "The principal is system-defined: the key server would skip the update and report success. Nothing was sent.")
	OwnAccount             = code("OWN_ACCOUNT", "The target is the caller's own principal; ask another administrator. Nothing was sent.")
	NoFlagWord             = code("NO_FLAG_WORD", "Principals of this type have no flags; nothing was sent.")
	Escalation             = extension("ESCALATION", "The change grants an operation, or a right on a key, that the caller does not have; detail names it. Nothing was changed.")
	DutiesConflict         = extension("DUTIES_CONFLICT", "A principal would get two duties that must be separate in this deployment; detail names an operation of each. Nothing was changed.")
	ApprovalRequired       = extension("APPROVAL_REQUIRED", "A rule of the approval policy guards the operation; detail names it. Request approval with POST /api/approvals. Nothing was changed.")
	SessionNotBound        = extension("SESSION_NOT_BOUND", "Approving and rejecting need a bound session; log in with a DPoP proof or a client certificate.")
	DigestMismatch         = extension("DIGEST_MISMATCH", "The digest is not that of the request in the approval; read the approval again.")
	ApprovalState          = extension("APPROVAL_STATE", "The state of the approval does not allow this: approvals are missing, it was rejected, executed or not executed in time, or the caller has already approved it.")
	AuthorityState         = extension("AUTHORITY_STATE", "The state of the internal CAs does not allow this; detail names the remedy. For example, a CA is already prepared, none is prepared, the prepared one is too new, or the CA is the active one. Nothing was changed.")
	ApprovalLimit          = extension("APPROVAL_LIMIT", "The number of pending approvals, of the requester or in total, reached its limit.")
	KeyNotExportable       = extension("KEY_NOT_EXPORTABLE", "The key was created as not exportable, and this cannot be changed.")
	KeyState               = extension("KEY_STATE", "The state of the key does not allow the change; detail names the state. Nothing was changed.")
	KeyNotFound            = code("KEY_NOT_FOUND", "No key has this hidden link.")
	NotFound               = code("NOT_FOUND", "The object or the path does not exist.")
	NotTrusted             = code("NOT_TRUSTED", "No trusted CA has this certificate id.")
	Archived               = extension("ARCHIVED", "The requested rows are no longer in the database; detail names the segment of the audit archive that contains them.")
	ACLNotFound            = code("ACL_NOT_FOUND", "The key, its ACL or the ACL entry does not exist; nothing was changed.")
	AlreadyTrusted         = code("ALREADY_TRUSTED", "The CA is already trusted; nothing was sent.")
	NotSaved               = code("NOT_SAVED", "The key server accepted the write, but the second read does not show it.")
	NotRemoved             = code("NOT_REMOVED", "The key server accepted the removal, but the second read still shows the object.")
	NotPersisted           = code("NOT_PERSISTED", "The key server accepted the write, but the second read does not show it.")
	NotVerified            = code("NOT_VERIFIED", "The second read of the ACL does not show the requested rights.")
	NoSavedRequest         = code("NO_SAVED_REQUEST", "The certificate was not issued here, so no saved request exists to renew it from; reset its transport principal and enrol a new certificate.")
	OpFailed               = code("OP_FAILED", "The key server failed, and no other code applies; the log has the cause under the request id.")
	ReadbackFailed         = code("READBACK_FAILED", "The write was sent, but the second read failed, so the effect is unknown.")
	RequestLimit           = code("REQUEST_LIMIT", "The session has too many requests in progress.")
	SessionLimit           = code("SESSION_LIMIT", "The process reached its limit of sessions.")
	Overloaded             = code("OVERLOADED", "The process reached its limit of queued work.")
	BuildNotAdmitted       = code("BUILD_NOT_ADMITTED", "The key server does not admit this build of the service, because it refused its release manifest; detail names the cause. The service checks it again automatically.")
	MethodNotAllowed       = extension("METHOD_NOT_ALLOWED", "The path exists, but not with this method; the header Allow lists the possible methods.")
	InvalidCredentials     = extension("INVALID_CREDENTIALS", "The login failed; the response is the same for every cause.")
	LoginThrottled         = extension("LOGIN_THROTTLED", "Too many logins failed for this name or address; wait for the time in Retry-After.")
	Owned                  = extension("OWNED", "The owner mark of the object belongs to another owner, or the object has no mark although one was expected; owner names the present one. Nothing was changed.")
	InUse                  = extension("IN_USE", "Another object needs this one; delete the other object first.")
	RewrapRunning          = extension("REWRAP_RUNNING", "Keys are still being rewrapped under the newest data key; create another one after that. Nothing was changed.")
	NoPassword             = extension("NO_PASSWORD", "Principals of this type have no password here; nothing was sent.")
	LastWriter             = extension("LAST_WRITER", "After the change, no member would have WRITE without an end time; nothing was sent.")
	AlreadyExists          = extension("ALREADY_EXISTS", "The name is already used; nothing was sent.")
	PayloadTooLarge        = extension("PAYLOAD_TOO_LARGE", "The request body is larger than the limit of the route.")
	UnsupportedEncoding    = extension("UNSUPPORTED_ENCODING", "The request body has a Content-Encoding; send it without one.")
	RequestTimeout         = extension("REQUEST_TIMEOUT", "The time limit of the route ended before the work was done.")
	AuditUnavailable       = extension("AUDIT_UNAVAILABLE", "The audit row could not be written, so the operation was refused.")
	StoreUnavailable       = extension("STORE_UNAVAILABLE", "The database does not respond.")
	StoreTampered          = extension("STORE_TAMPERED", "The database row of an object was not written by this key server, so it is not used; an operator must examine it.")
	CheckpointUnsigned     = extension("CHECKPOINT_UNSIGNED", "The checkpoint to cosign does not have a signature by the key of its log.")
	CheckpointInconsistent = extension("CHECKPOINT_INCONSISTENT", "The checkpoint does not continue the last cosigned one, or its proof does not show this.")
	NotReady               = extension("NOT_READY", "A part of the service is not ready; parts names it and the time of the next try.")
	NotCurrent             = extension("NOT_CURRENT", "This replica cannot confirm that its state is current, so it refuses the request.")
	ProviderUnavailable    = extension("IDENTITY_PROVIDER_UNAVAILABLE", "The identity provider of the login (token issuer, cluster or directory) is not available now.")
	PeerUnavailable        = extension("PEER_UNAVAILABLE", "The key server that owns the object is not available now. It changed no ACL, but it may have counted a use, and a retry may count another one.")
	PeerNoAnswer           = extension("PEER_NO_ANSWER", "The key server that owns the object received a change but did not respond, so the change may have taken effect; read the object before a retry.")
)
