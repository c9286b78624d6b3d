package fault

// Code is what clients match on (contract 1.9). The wording of a detail
// may change, a code may not.
type Code string

// Codes of the core (contract 22.2).
const (
	BadRequest            Code = "BAD_REQUEST"
	InvalidArgument       Code = "INVALID_ARGUMENT"
	SessionNotFound       Code = "SESSION_NOT_FOUND"
	SessionExpired        Code = "SESSION_EXPIRED"
	ScopedExpired         Code = "SCOPED_CREDENTIAL_EXPIRED"
	CertificateRevoked    Code = "CERTIFICATE_REVOKED"
	ProofMalformed        Code = "PROOF_MALFORMED"
	ProofRequired         Code = "PROOF_REQUIRED"
	ProofInvalidSignature Code = "PROOF_INVALID_SIGNATURE"
	ProofKeyMismatch      Code = "PROOF_KEY_MISMATCH"
	ProofMethodMismatch   Code = "PROOF_METHOD_MISMATCH"
	ProofURIMismatch      Code = "PROOF_URI_MISMATCH"
	ProofTokenMismatch    Code = "PROOF_TOKEN_MISMATCH"
	ProofStale            Code = "PROOF_STALE"
	ProofReplayed         Code = "PROOF_REPLAYED"
	ProofCacheFull        Code = "PROOF_REPLAY_CACHE_FULL"
	RevocationUnavailable Code = "REVOCATION_STATUS_UNAVAILABLE"
	RevocationStale       Code = "REVOCATION_EVIDENCE_STALE"
	AccessDenied          Code = "ACCESS_DENIED"
	ACLDenied             Code = "ACL_DENIED"
	PrincipalOff          Code = "PRINCIPAL_DISABLED"
	DelegatorRefused      Code = "DELEGATOR_REFUSED"
	NotInScope            Code = "OBJECT_NOT_IN_CREDENTIAL_SCOPE"
	NotWritable           Code = "NOT_WRITABLE"
	BuiltIn               Code = "BUILT_IN"
	BuiltInPrincipal      Code = "BUILT_IN_PRINCIPAL"
	OwnAccount            Code = "OWN_ACCOUNT"
	NoFlagWord            Code = "NO_FLAG_WORD"
	KeyNotFound           Code = "KEY_NOT_FOUND"
	NotFound              Code = "NOT_FOUND"
	NotTrusted            Code = "NOT_TRUSTED"
	ACLNotFound           Code = "ACL_NOT_FOUND"
	AlreadyTrusted        Code = "ALREADY_TRUSTED"
	NotSaved              Code = "NOT_SAVED"
	NotRemoved            Code = "NOT_REMOVED"
	NotPersisted          Code = "NOT_PERSISTED"
	NotVerified           Code = "NOT_VERIFIED"
	NoSavedRequest        Code = "NO_SAVED_REQUEST"
	OpFailed              Code = "OP_FAILED"
	ReadbackFailed        Code = "READBACK_FAILED"
	RequestLimit          Code = "REQUEST_LIMIT"
	SessionLimit          Code = "SESSION_LIMIT"
	Overloaded            Code = "OVERLOADED"
	BuildNotAdmitted      Code = "BUILD_NOT_ADMITTED"
	MethodNotAllowed      Code = "METHOD_NOT_ALLOWED"
)

// Codes beyond the core (contract 1.2). Each stands for something that the core
// leaves unsaid; docs/api.md marks them as extensions.
const (
	InvalidCredentials Code = "INVALID_CREDENTIALS" // a login that failed, whatever the cause
	LoginThrottled     Code = "LOGIN_THROTTLED"     // too many failed logins for this name or address
	InUse              Code = "IN_USE"              // another object needs the one to be deleted
	LastWriter         Code = "LAST_WRITER"         // nobody would be left who can change the object
	AlreadyExists      Code = "ALREADY_EXISTS"      // the name is taken; nothing was sent
	PayloadTooLarge    Code = "PAYLOAD_TOO_LARGE"   // the body is over the route's limit
	RequestTimeout     Code = "REQUEST_TIMEOUT"     // the route's time limit passed
	AuditUnavailable   Code = "AUDIT_UNAVAILABLE"   // no audit row could be made durable, so nothing was done
	StoreUnavailable   Code = "STORE_UNAVAILABLE"   // the database does not answer
	NotReady           Code = "NOT_READY"           // a part of the service is not ready
	NotCurrent         Code = "NOT_CURRENT"         // this replica cannot confirm that what it knows is current
	PeerUnavailable    Code = "PEER_UNAVAILABLE"    // the peer that owns the object cannot be asked; no list was changed
	PeerNoAnswer       Code = "PEER_NO_ANSWER"      // the peer was sent a change and did not say what became of it
)

// ProviderUnavailable is a code beyond the core, too (contract 19.5): nobody can say
// whether the login is good.
const ProviderUnavailable Code = "IDENTITY_PROVIDER_UNAVAILABLE"

// Entry is one row of the catalogue of codes.
type Entry struct {
	Code      Code
	Extension bool   // not in the contract
	Meaning   string // one sentence for the generated reference
}

// Catalogue lists every code that this service answers. Package httpapi maps
// each to a status, and a test walks the list.
var Catalogue = []Entry{
	{BadRequest, false, "Refused before anything reached the key server; detail names the field."},
	{InvalidArgument, false, "The key server itself refused the argument; detail is its sentence."},
	{SessionNotFound, false, "The credential names no live session; log in again."},
	{SessionExpired, false, "The session reached its idle or absolute lifetime; log in again."},
	{ScopedExpired, false, "The scoped credential reached the end of its fixed lifetime; have a new one made."},
	{ProofMalformed, false, "The DPoP proof is not one as RFC 9449 has it; detail names the part."},
	{ProofRequired, false, "The session is bound to a key and the request has no DPoP proof."},
	{ProofInvalidSignature, false, "The signature of the DPoP proof is not by the key in its header."},
	{ProofKeyMismatch, false, "The DPoP proof is by another key than the session's, or the session is bound to none."},
	{ProofMethodMismatch, false, "The DPoP proof is for another method (htm)."},
	{ProofURIMismatch, false, "The DPoP proof is for another URL (htu)."},
	{ProofTokenMismatch, false, "The DPoP proof is for another session id (ath)."},
	{ProofStale, false, "The time of the DPoP proof (iat) is too far from now; make a new one."},
	{ProofReplayed, false, "The DPoP proof was used before (jti); make a new one for each request."},
	{ProofCacheFull, false, "The process remembers as many used proofs as it may, and forgets none that could be used again."},
	{CertificateRevoked, false, "Revocation evidence names the session's certificate; log in with another one."},
	{RevocationUnavailable, false, "The issuer's policy requires revocation evidence and there is none; import the issuer's CRL."},
	{RevocationStale, false, "The issuer's policy requires current revocation evidence and what there is has aged out; import the issuer's current CRL."},
	{AccessDenied, false, "No role of the caller grants the operation."},
	{ACLDenied, false, "The access control list of the key refuses the caller; ask the key's owner."},
	{PrincipalOff, false, "The caller's principal is disabled."},
	{DelegatorRefused, false, "The delegator of the session is disabled, lost its delegation flag, is enrolled no more, or its certificate is revoked; an administrator has to restore it."},
	{NotInScope, false, "The object is outside the scoped credential."},
	{NotWritable, false, "Only a member that holds WRITE may change the object; nothing was sent."},
	{BuiltIn, false, "A system-defined role is read-only."},
	{BuiltInPrincipal, false, "A system-defined principal: the key server would skip the update and report success, so nothing was sent."},
	{OwnAccount, false, "The target is the caller's own principal; another administrator has to do it. Nothing was sent."},
	{NoFlagWord, false, "Principals of that type have no flags; nothing was sent."},
	{KeyNotFound, false, "The hidden link names no key."},
	{NotFound, false, "No such object, or no such path."},
	{NotTrusted, false, "No trusted CA has that certificate id."},
	{ACLNotFound, false, "The key, its access control list or the entry to amend does not exist; nothing was changed."},
	{AlreadyTrusted, false, "The CA is in the trusted list already; nothing was sent."},
	{NotSaved, false, "The write was accepted, but reading it back does not show it."},
	{NotRemoved, false, "The removal was accepted, but reading the list back still shows the object."},
	{NotPersisted, false, "The write was accepted, but a fresh read does not show it."},
	{NotVerified, false, "The access control list does not show the requested rights when read back."},
	{NoSavedRequest, false, "The certificate was not issued here, so there is no request to issue it anew from; reset its transport principal and enrol a fresh one."},
	{OpFailed, false, "The key server failed in a way that has no code of its own; the log has the cause under the request id."},
	{ReadbackFailed, false, "The write was sent, but reading it back failed, so its effect is unknown."},
	{RequestLimit, false, "The session has too many requests in flight."},
	{SessionLimit, false, "The process holds as many sessions as it may."},
	{Overloaded, false, "The process has as much work queued as it may."},
	{BuildNotAdmitted, false, "The key server does not admit this build of the service, because its release manifest is refused; detail names the cause. It is looked at again by itself."},
	{MethodNotAllowed, true, "The path exists, the method does not; Allow lists those that do."},
	{InvalidCredentials, true, "The login failed; the answer is the same whatever the cause."},
	{LoginThrottled, true, "Too many failed logins for this name or address; wait as Retry-After says."},
	{InUse, true, "Another object needs this one; delete that first."},
	{LastWriter, true, "The change would leave nobody who can change the object for good; nothing was sent."},
	{AlreadyExists, true, "The name is taken; nothing was sent."},
	{PayloadTooLarge, true, "The request body is over the route's limit."},
	{RequestTimeout, true, "The route's time limit passed before the work was done."},
	{AuditUnavailable, true, "No audit row could be written, so the operation was refused."},
	{StoreUnavailable, true, "The database does not answer."},
	{NotReady, true, "A part of the service is not ready; parts names it and says when it retries."},
	{NotCurrent, true, "This replica cannot confirm that its state is current, so it refuses rather than guess."},
	{ProviderUnavailable, true, "The identity provider that the login is for, the issuer, the cluster or the directory, cannot be asked now."},
	{PeerUnavailable, true, "The key server that owns the object cannot be asked now. No list was changed there; a use may have been counted, and asking again may count another."},
	{PeerNoAnswer, true, "The key server that owns the object was sent a change and did not say what became of it, so it may have taken effect; read the object before trying again."},
}
