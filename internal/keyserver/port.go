package keyserver

import (
	"context"
	"io"
)

// Port is the interface of a key server. Each method is one operation of the catalogue. Before any effect, the key
// server authorizes the operation and writes its audit row. If it refuses the operation, it returns a fault. No method
// verifies its own effect; package verified does that.
type Port interface {
	Keys
	KeyLives
	ACLs
	Roles
	TrustedCAs
	TrustedServers
	Authorities
	PrincipalTrusts
	ACLTemplates
	TemplatedDirectories
	Principals
	Records
	Configurations
	Certificates
	Revocation
	Custodies
	Owners
	Backups
	Explanations
}

// Explanations are the operations that predict decisions of the authorizer.
type Explanations interface {
	// Explain returns how the authorizer would decide an operation, and why. It performs
	// nothing and counts no use. Any caller may ask about itself without suppositions.
	Explain(ctx context.Context, by Caller, q Question) (Explanation, error)
	// WhoCan returns the principals that would be allowed, in pages sorted by id.
	WhoCan(ctx context.Context, by Caller, c WhoCanQuery) (WhoCanPage, error)
}

// Backups are the operations on copies of the complete database.
type Backups interface {
	// CreateBackup writes a consistent copy of the database, encrypted for an age recipient.
	// If it fails, discard the part that was written. It returns OVERLOADED while another
	// backup runs.
	CreateBackup(ctx context.Context, by Caller, recipient string, to io.Writer) error
}

// Owners are the operations on owner marks.
type Owners interface {
	// OwnerMarks returns the marks that the filter selects, sorted by id.
	OwnerMarks(ctx context.Context, by Caller, f OwnerFilter) ([]OwnerMark, error)
	// SetOwner marks an object and returns the resulting mark. It returns NOT_FOUND if the object does not exist. It
	// returns OWNED with the unchanged mark if change.Allows is false for the present owner.
	SetOwner(ctx context.Context, by Caller, change OwnerChange) (OwnerMark, error)
	// ReleaseOwner deletes the mark of the owner release.Expect, and returns it. It returns NOT_FOUND if there is no
	// mark, and OWNED with the unchanged mark if the mark names another owner.
	ReleaseOwner(ctx context.Context, by Caller, release OwnerRelease) (OwnerMark, error)
}

// Custodies are the operations on data keys and the key-encryption key.
type Custodies interface {
	Custody(ctx context.Context, by Caller) (Custody, error)
	// RotateDataKey creates a data key that wraps keys from then on, and returns its id.
	// It returns REWRAP_RUNNING while keys are still being rewrapped from an earlier data
	// key.
	RotateDataKey(ctx context.Context, by Caller) (ID, error)
}

// Keys are the operations on keys.
type Keys interface {
	// MintKey creates or imports a key. The caller becomes its owner.
	MintKey(ctx context.Context, by Caller, key NewKey) (KeyMetadata, error)
	// Key returns metadata. It returns KEY_NOT_FOUND if the link names no key.
	Key(ctx context.Context, by Caller, link HiddenLink) (KeyMetadata, error)
	// AuthorizeKey checks whether the caller may use the key. It returns a grant, or
	// ACL_DENIED, ACCESS_DENIED or KEY_NOT_FOUND.
	AuthorizeKey(ctx context.Context, by Caller, use Use) (Grant, error)
	// Entitled returns nil if a role of the caller grants the operation, and ACCESS_DENIED
	// otherwise. It is for work that has to begin before the object of the operation is
	// known. Only refusals are audited.
	Entitled(ctx context.Context, by Caller, op Operation) error
	// HMAC computes HMAC-SHA384 of the message under the key.
	HMAC(ctx context.Context, by Caller, r HMACRequest) ([MACSize]byte, error)
	// MAC is HMAC under the newest key of a lineage that can make MACs. It returns
	// KEY_DISABLED if there is none.
	MAC(ctx context.Context, by Caller, r MACRequest) (MAC, error)
	// VerifyMAC compares a MAC with that of a message under one key, or under the keys of
	// a lineage that can verify. A wrong MAC is not an error.
	VerifyMAC(ctx context.Context, by Caller, r MACCheck) (MACVerdict, error)
	// MACBatch is MAC for many messages. Each item has its own result and its own audit
	// row. The returned error concerns the entire batch.
	MACBatch(ctx context.Context, by Caller, items []MACItem) ([]MACResult, error)
	// VerifyMACBatch verifies many MACs. Results, audit rows and the error are as for MACBatch.
	VerifyMACBatch(ctx context.Context, by Caller, items []MACCheck) ([]MACVerdictResult, error)
	// Encrypt encrypts under an AES-256 key; for a lineage, under its newest enabled key.
	// It returns KEY_EXHAUSTED if the key has reached the limit of encryptions.
	Encrypt(ctx context.Context, by Caller, r Encryption) (Ciphertext, error)
	// Decrypt decrypts with the key that the ciphertext names. This has to be the
	// requested key, or a key of the requested lineage.
	Decrypt(ctx context.Context, by Caller, r Decryption) (Plaintext, error)
	// ExportKey encrypts the key for a transport principal of this key server. The caller
	// needs OWNER, and the recipient needs a certificate in force.
	ExportKey(ctx context.Context, by Caller, x KeyExport) (ExportedKey, error)
}

// ACLs are the operations on access control lists. Each method returns ACL_NOT_FOUND if the link names no key. AmendACL
// also returns it if the principal has no entry.
type ACLs interface {
	ACL(ctx context.Context, by Caller, link HiddenLink) (ACL, error)
	// OwnACL returns the ACL of a local key with only one entry: that of the caller, or of a group of the caller. It
	// needs no right on the key.
	OwnACL(ctx context.Context, by Caller, link HiddenLink, own PrincipalRef) (ACL, error)
	// GrantACL adds rights to the principal's entry, which it creates if there is none. It replaces the limits of the
	// entry.
	GrantACL(ctx context.Context, by Caller, change ACLChange) error
	// AmendACL sets the entry to exactly the (widened) rights.
	AmendACL(ctx context.Context, by Caller, change ACLChange) error
	// RevokeACL removes the principal's entry.
	RevokeACL(ctx context.Context, by Caller, r ACLRevocation) error
}

// Roles are the operations on roles and the operations catalogue.
type Roles interface {
	Operations(ctx context.Context, by Caller) ([]Operation, error)
	Roles(ctx context.Context, by Caller) ([]Role, error)
	// FindRoles returns only the roles with the given id or name. Its cost does not grow
	// with the number of roles.
	FindRoles(ctx context.Context, by Caller, f RoleFilter) ([]Role, error)
	CreateRole(ctx context.Context, by Caller, n NewRole) (ID, error)
	UpdateRole(ctx context.Context, by Caller, change RoleChange) error
	// DeleteRole deletes the role and removes it from every principal that holds it.
	DeleteRole(ctx context.Context, by Caller, id ID) error
}

// TrustedCAs are the operations on the list of trusted CAs.
type TrustedCAs interface {
	TrustedCAs(ctx context.Context, by Caller) ([]Certificate, error)
	// AddTrustedCA adds one DER certificate and returns the id of the new trusted CA, as a list.
	AddTrustedCA(ctx context.Context, by Caller, der []byte) ([]ID, error)
	// RemoveTrustedCA removes one trusted CA and returns its id, as a list.
	RemoveTrustedCA(ctx context.Context, by Caller, id ID) ([]ID, error)
}

// TrustedServers are the operations on peers. Methods with a system id return NOT_FOUND if no peer has that id.
type TrustedServers interface {
	TrustedServers(ctx context.Context, by Caller) ([]TrustedServer, error)
	// AddTrustedServer registers a peer, creates its transport principal and restores the
	// ACL rows that the last removal of the peer purged. It returns INVALID_ARGUMENT if
	// the peer is this key server, its name does not resolve, or its chain leads to no
	// trusted CA. It returns ALREADY_EXISTS if the peer is registered.
	AddTrustedServer(ctx context.Context, by Caller, n NewTrustedServer) (TrustedServerAdded, error)
	UpdateTrustedServer(ctx context.Context, by Caller, change TrustedServerChange) error
	// RemoveTrustedServer removes a peer and its transport principal, and purges the ACL
	// rows of the peer's principals. Principal trusts stay.
	RemoveTrustedServer(ctx context.Context, by Caller, system SystemID) (TrustedServerRemoved, error)
	// TrustInfo returns the data with which other key servers register this one.
	TrustInfo(ctx context.Context, by Caller) (TrustInfo, error)
}

// Authorities are the operations on this key server's own CAs. A change returns
// AUTHORITY_STATE if the state of the CAs does not allow it.
type Authorities interface {
	// Authorities returns the CAs sorted by generation.
	Authorities(ctx context.Context, by Caller) ([]Authority, error)
	// PrepareAuthority creates the next CA, which is trusted and issues nothing.
	PrepareAuthority(ctx context.Context, by Caller) (ID, error)
	// ActivateAuthority makes the prepared CA active, and the CA that was active retiring. early skips the check that
	// the CA was prepared long enough ago.
	ActivateAuthority(ctx context.Context, by Caller, early bool) (ID, error)
	// RetireAuthority ends the trust in a CA that does not issue certificates. It returns NOT_FOUND if no CA has the
	// id.
	RetireAuthority(ctx context.Context, by Caller, id ID) (AuthorityRetired, error)
}

// PrincipalTrusts are the operations on rows that decide which principals a peer may learn of. A method that names a
// row returns NOT_FOUND if no row has the id.
type PrincipalTrusts interface {
	PrincipalTrusts(ctx context.Context, by Caller, filter PrincipalTrustFilter) ([]PrincipalTrust, error)
	// CreatePrincipalTrust creates a row and returns its random id. A row about a principal of this key server decides
	// whether the peer may learn of it. A row that restricts a principal of the peer forbids it operations here. It
	// returns NOT_FOUND if the peer is not registered or the principal exists on neither key server, and ALREADY_EXISTS
	// if the principal has a row for that peer.
	CreatePrincipalTrust(ctx context.Context, by Caller, t PrincipalTrust) (ID, error)
	UpdatePrincipalTrust(ctx context.Context, by Caller, change PrincipalTrustChange) error
	DeletePrincipalTrust(ctx context.Context, by Caller, id ID) error
}

// ACLTemplates are the operations on ACL templates. A method that names a template returns NOT_FOUND if the template
// does not exist. Each change except a deletion returns NOT_WRITABLE if the caller is not a member with WRITE.
type ACLTemplates interface {
	ACLTemplates(ctx context.Context, by Caller, q ACLTemplateQuery) ([]ACLTemplate, error)
	// ACLTemplate returns a template with its members.
	ACLTemplate(ctx context.Context, by Caller, id ID) (ACLTemplate, error)
	// CreateACLTemplate creates a template with the caller as its owner.
	CreateACLTemplate(ctx context.Context, by Caller, name string) (ID, error)
	RenameACLTemplate(ctx context.Context, by Caller, change ACLTemplateChange) error
	// DeleteACLTemplate returns IN_USE if a templated directory uses the template.
	DeleteACLTemplate(ctx context.Context, by Caller, id ID) error
	// PutACLTemplateMember makes a principal a member with exactly the (widened) rights.
	// It returns LAST_WRITER, like RemoveACLTemplateMember, if no member with permanent
	// WRITE would be left.
	PutACLTemplateMember(ctx context.Context, by Caller, m TemplateMembership) error
	RemoveACLTemplateMember(ctx context.Context, by Caller, m TemplateMemberRef) error
}

// TemplatedDirectories are the operations on templated directories.
type TemplatedDirectories interface {
	TemplatedDirectories(ctx context.Context, by Caller) ([]TemplatedDirectory, error)
	// TemplatedDirectoriesAt returns the directories whose stored paths equal the given
	// ones exactly.
	TemplatedDirectoriesAt(ctx context.Context, by Caller, paths []string) ([]TemplatedDirectory, error)
	CreateTemplatedDirectory(ctx context.Context, by Caller, n NewTemplatedDirectory) (ID, error)
	DeleteTemplatedDirectory(ctx context.Context, by Caller, id ID) error
}

// Configurations are the operations on the key server's configuration.
type Configurations interface {
	// Configuration returns the root of the complete tree, secrets included. xpath is
	// recorded in the audit row.
	Configuration(ctx context.Context, by Caller, xpath string) (ConfigNode, error)
}

// Principals are the operations on principals.
type Principals interface {
	Principal(ctx context.Context, by Caller, id ID) (Principal, error)
	CreatePasswordPrincipal(ctx context.Context, by Caller, p NewPasswordPrincipal) (ID, error)
	// CreatePrincipal creates a principal of type ldap, xauth or group.
	CreatePrincipal(ctx context.Context, by Caller, p NewPrincipal) (ID, error)
	// ListPrincipals returns INVALID_ARGUMENT if a request without a window selects more
	// than MaxUnwindowed principals.
	ListPrincipals(ctx context.Context, by Caller, filter PrincipalFilter) (PrincipalPage, error)
	// LookupPrincipals resolves each pair on the key server that owns it. It omits pairs
	// that cannot be resolved.
	LookupPrincipals(ctx context.Context, by Caller, pairs []PrincipalRef) ([]Principal, error)
	// UpdatePrincipalFlags sets the bits that the change names. Like every update, it
	// skips a system-defined principal and reports success.
	UpdatePrincipalFlags(ctx context.Context, by Caller, change FlagChange) error
	// AddDelegate does nothing if the delegate is already named. RemoveDelegate also
	// clears the delegation flag if it removes the last delegate.
	AddDelegate(ctx context.Context, by Caller, d Delegate) error
	RemoveDelegate(ctx context.Context, by Caller, d Delegate) error
	// SetPrincipalRoles replaces the roles of a principal.
	SetPrincipalRoles(ctx context.Context, by Caller, r PrincipalRoles) error
	// DeletePrincipal deletes a principal permanently. It returns IN_USE if the principal
	// is the only owner of a key or a template and no new owner is given.
	DeletePrincipal(ctx context.Context, by Caller, d PrincipalDeletion) (PrincipalDeletionResult, error)
	// GroupMembers returns members sorted by id.
	GroupMembers(ctx context.Context, by Caller, f GroupFilter) ([]Principal, error)
	// AddGroupMember does nothing if the principal is already a member.
	AddGroupMember(ctx context.Context, by Caller, m Membership) error
	RemoveGroupMember(ctx context.Context, by Caller, m Membership) error
}

// Records are the operations that read a key server's own records: version, audit log,
// change feed and readiness.
type Records interface {
	Version(ctx context.Context, by Caller) (Version, error)
	Audit(ctx context.Context, by Caller, filter AuditFilter) (AuditPage, error)
	// AuditReceipt returns a proof that a row is in the audit tree (C2SP tlog-proof). It
	// returns NOT_FOUND if there is no such row, and NOT_READY if the tree does not
	// contain it in time.
	AuditReceipt(ctx context.Context, by Caller, seq int64) ([]byte, error)
	// AuditCheckpoint returns the size and root of the audit tree (C2SP tlog-checkpoint).
	// Like AuditKey and the tiles of hashes, it is public and not audited; otherwise each
	// read would make the tree grow.
	AuditCheckpoint(ctx context.Context) ([]byte, error)
	AuditKey(ctx context.Context) (AuditKey, error)
	// Witness returns the state of the logs of other servers that this key server witnesses.
	Witness(ctx context.Context, by Caller) (Witness, error)
	// AuditTile returns hashes of the tree, or the rows of a tile (C2SP tlog-tiles). Rows
	// need the right to read the audit log. It returns NOT_FOUND if the tree is too small.
	AuditTile(ctx context.Context, by Caller, t AuditTile) ([]byte, error)
	// Changes returns a page of the change feed.
	Changes(ctx context.Context, by Caller, f ChangeFilter) (ChangePage, error)
	// Ready returns the state of each part. It needs no caller and is not audited.
	Ready(ctx context.Context) []Readiness
}

// Certificates are the operations on the certificates of transport principals.
type Certificates interface {
	// FindCertificates returns at most MaxCertificates, and INVALID_ARGUMENT if more
	// match.
	FindCertificates(ctx context.Context, by Caller, lookup CertificateLookup) ([]Certificate, error)
	// IssueCertificate signs a request with the internal CA and saves the request. It does
	// not enrol.
	IssueCertificate(ctx context.Context, by Caller, request CertificateRequest) (Issued, error)
	// RenewCertificate issues a certificate from the saved request and marks the old one
	// expired. It returns NOT_FOUND if no current certificate has the digest, and
	// NO_SAVED_REQUEST if the certificate was not issued here.
	RenewCertificate(ctx context.Context, by Caller, digest Digest) (Issued, error)
	// EnrollCertificates enrols all or none. The results have the order of the request.
	EnrollCertificates(ctx context.Context, by Caller, enrolment Enrolment) ([]Enrolled, error)
	// ResetTransportPrincipal removes the certificates of a transport principal and ends
	// its sessions.
	ResetTransportPrincipal(ctx context.Context, by Caller, id ID) (TransportReset, error)
}

// Revocation has the operations on revocation policies and evidence. A digest has the format of revocationDigest in the
// list of trusted CAs.
type Revocation interface {
	// RevocationIssuers returns one issuer for each trusted CA.
	RevocationIssuers(ctx context.Context, by Caller) ([]RevocationIssuer, error)
	// RevocationIssuer returns one issuer, or NOT_FOUND if no trusted CA has the digest.
	RevocationIssuer(ctx context.Context, by Caller, digest string) (RevocationIssuer, error)
	SetRevocationPolicy(ctx context.Context, by Caller, change RevocationPolicyChange) error
	// ImportCRL replaces an older CRL and returns the digests of the CAs to which the new
	// one applies.
	ImportCRL(ctx context.Context, by Caller, der []byte) ([]string, error)
}
