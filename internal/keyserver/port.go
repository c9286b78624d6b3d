package keyserver

import (
	"context"
	"io"
)

// Port is everything a key server can be asked. Each method is one operation
// of the catalogue: the key server authorises and audits it before any effect
// and answers a fault when it refuses. No method verifies its own effect; that
// is the work of package verified.
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

// Explanations are the questions about what the gate would say.
type Explanations interface {
	// Explain answers what the gate would say to an operation, and why. Nothing is done,
	// and no use counted. Of oneself, without suppositions, anybody may ask.
	Explain(ctx context.Context, by Caller, q Question) (Explanation, error)
	// WhoCan answers who would be let, in pages by id.
	WhoCan(ctx context.Context, by Caller, c Crowd) (CrowdPage, error)
}

// Backups are the operations on copies of all that there is.
type Backups interface {
	// MakeBackup writes a copy of the database, as it is at one moment, encrypted for a
	// recipient of age. What was written where it fails is of no use. OVERLOADED while
	// another one is made.
	MakeBackup(ctx context.Context, by Caller, recipient string, to io.Writer) error
}

// Owners are the operations on owner marks.
type Owners interface {
	// OwnerMarks reads the marks that a filter selects, by id.
	OwnerMarks(ctx context.Context, by Caller, f OwnerFilter) ([]OwnerMark, error)
	// SetOwner marks an object, and answers the mark that there is then: NOT_FOUND
	// where there is no such object; OWNED, with the mark that stays, where the
	// change does not allow for who holds it.
	SetOwner(ctx context.Context, by Caller, change OwnerChange) (OwnerMark, error)
	// ReleaseOwner takes away a mark that the owner of the change holds, and
	// answers it: NOT_FOUND where there is none, OWNED, with the mark that stays,
	// where somebody else holds it.
	ReleaseOwner(ctx context.Context, by Caller, release OwnerRelease) (OwnerMark, error)
}

// Custodies are the operations on how the keys are kept.
type Custodies interface {
	Custody(ctx context.Context, by Caller) (Custody, error)
	// RotateDataKey makes a new data key, which wraps from then on, and answers its
	// id. REWRAP_RUNNING while keys are still being taken away from an earlier one.
	RotateDataKey(ctx context.Context, by Caller) (ID, error)
}

// Keys are the operations on keys.
type Keys interface {
	// MintKey makes or imports a key. The caller becomes its owner.
	MintKey(ctx context.Context, by Caller, key NewKey) (KeyMetadata, error)
	// Key reads metadata. KEY_NOT_FOUND where the link names no key.
	Key(ctx context.Context, by Caller, link HiddenLink) (KeyMetadata, error)
	// AuthorizeKey asks whether the caller may use the key: a grant, or
	// ACL_DENIED, ACCESS_DENIED, KEY_NOT_FOUND.
	AuthorizeKey(ctx context.Context, by Caller, use Use) (Grant, error)
	// Entitled answers nil where a role of the caller grants the operation, and
	// ACCESS_DENIED otherwise: for work that has to begin before it is known what
	// the operation is about. It is recorded only where it refuses.
	Entitled(ctx context.Context, by Caller, op Operation) error
	// HMAC computes HMAC-SHA384 of the message under the key.
	HMAC(ctx context.Context, by Caller, r HMACRequest) ([MACSize]byte, error)
	// MAC is HMAC under the newest key of a line that makes MACs. KEY_DISABLED
	// where none does.
	MAC(ctx context.Context, by Caller, r MACRequest) (MAC, error)
	// VerifyMAC says whether a MAC is that of a message, under a key or under any
	// of a line that checks. That it is not is no error.
	VerifyMAC(ctx context.Context, by Caller, r MACCheck) (MACVerdict, error)
	// MACBatch is MAC for many messages. Each item has its own answer, and its own
	// row; an error is about all of them.
	MACBatch(ctx context.Context, by Caller, items []MACItem) ([]MACAnswer, error)
	// Encrypt encrypts under an AES-256 key, of a line the newest that is enabled.
	// KEY_EXHAUSTED where it has encrypted as much as one key may.
	Encrypt(ctx context.Context, by Caller, r Encryption) (Ciphertext, error)
	// Decrypt decrypts with the key that the ciphertext names, which has to be the
	// one that is asked for, or of its line.
	Decrypt(ctx context.Context, by Caller, r Decryption) (Plaintext, error)
	// ExportKey encrypts the key for a transport principal of this key server.
	// It needs OWNER, and the recipient a certificate in force.
	ExportKey(ctx context.Context, by Caller, x KeyExport) (ExportedKey, error)
}

// ACLs are the operations on access control lists. Each answers ACL_NOT_FOUND
// where the link names no key, and AmendACL also where the principal has no entry.
type ACLs interface {
	ACL(ctx context.Context, by Caller, link HiddenLink) (ACL, error)
	// OwnACL reads, of the list of a key of this key server, the entry of the caller, or
	// of a group of the caller's, alone. It takes no right on the list.
	OwnACL(ctx context.Context, by Caller, link HiddenLink, own PrincipalRef) (ACL, error)
	// GrantACL adds rights to the principal's entry, which it makes where
	// there is none; limits are replaced.
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
	// FindRoles reads those roles alone, of the list, that have the id or the
	// name: what it costs does not grow with the list.
	FindRoles(ctx context.Context, by Caller, f RoleFilter) ([]Role, error)
	CreateRole(ctx context.Context, by Caller, n NewRole) (ID, error)
	UpdateRole(ctx context.Context, by Caller, change RoleChange) error
	// DeleteRole removes the role, also from every principal that holds it.
	DeleteRole(ctx context.Context, by Caller, id ID) error
}

// TrustedCAs are the operations on the list of trusted CAs.
type TrustedCAs interface {
	TrustedCAs(ctx context.Context, by Caller) ([]Certificate, error)
	// AddTrustedCA adds one DER certificate and echoes the objects it made.
	AddTrustedCA(ctx context.Context, by Caller, der []byte) ([]ID, error)
	// RemoveTrustedCA removes one and echoes the objects it removed.
	RemoveTrustedCA(ctx context.Context, by Caller, id ID) ([]ID, error)
}

// TrustedServers are the operations on peer key servers. Each that names a
// peer answers NOT_FOUND where none has the system id.
type TrustedServers interface {
	TrustedServers(ctx context.Context, by Caller) ([]TrustedServer, error)
	// AddTrustedServer registers a peer, makes its transport principal and puts
	// back the ACL rows that its last removal had purged. INVALID_ARGUMENT
	// where the peer is this key server itself, its name does not resolve, or
	// its chain leads to no trusted CA; ALREADY_EXISTS where it is registered.
	AddTrustedServer(ctx context.Context, by Caller, n NewTrustedServer) (TrustedServerAdded, error)
	UpdateTrustedServer(ctx context.Context, by Caller, change TrustedServerChange) error
	// RemoveTrustedServer removes a peer and its transport principal, and purges
	// the ACL rows of its principals. Principal trusts stay.
	RemoveTrustedServer(ctx context.Context, by Caller, system SystemID) (TrustedServerRemoved, error)
	// TrustInfo reads what other key servers need to register this one.
	TrustInfo(ctx context.Context, by Caller) (TrustInfo, error)
}

// Authorities are the operations on the CAs of this key server's own. A change
// answers AUTHORITY_STATE where they are in no state for it.
type Authorities interface {
	// Authorities lists by generation.
	Authorities(ctx context.Context, by Caller) ([]Authority, error)
	// PrepareAuthority makes the next one, which is trusted and issues nothing.
	PrepareAuthority(ctx context.Context, by Caller) (ID, error)
	// ActivateAuthority has the one that is prepared issue, and the one before it
	// retire. early leaves out that it has to have been prepared for a while.
	ActivateAuthority(ctx context.Context, by Caller, early bool) (ID, error)
	// RetireAuthority ends the trust in one that does not issue. NOT_FOUND where
	// there is none.
	RetireAuthority(ctx context.Context, by Caller, id ID) (AuthorityRetired, error)
}

// PrincipalTrusts are the operations on what peers are told about principals.
// Each that names a row answers NOT_FOUND where none has the id.
type PrincipalTrusts interface {
	PrincipalTrusts(ctx context.Context, by Caller, filter PrincipalTrustFilter) ([]PrincipalTrust, error)
	// CreatePrincipalTrust draws the id of the row. A row about a principal of
	// this key server says what the peer is told; one that restricts a principal
	// of the peer, that nothing is done for it here. NOT_FOUND where the peer is
	// not registered or the principal exists on neither; ALREADY_EXISTS where
	// the principal has a row for that peer.
	CreatePrincipalTrust(ctx context.Context, by Caller, t PrincipalTrust) (ID, error)
	UpdatePrincipalTrust(ctx context.Context, by Caller, change PrincipalTrustChange) error
	DeletePrincipalTrust(ctx context.Context, by Caller, id ID) error
}

// ACLTemplates are the operations on ACL templates. Each that names one
// answers NOT_FOUND where there is none, and each change but a deletion
// NOT_WRITABLE where the caller is no write-holding member.
type ACLTemplates interface {
	ACLTemplates(ctx context.Context, by Caller, q ACLTemplateQuery) ([]ACLTemplate, error)
	// ACLTemplate reads a template with its members.
	ACLTemplate(ctx context.Context, by Caller, id ID) (ACLTemplate, error)
	// CreateACLTemplate makes a template with the caller as its owner.
	CreateACLTemplate(ctx context.Context, by Caller, name string) (ID, error)
	RenameACLTemplate(ctx context.Context, by Caller, change ACLTemplateChange) error
	// DeleteACLTemplate answers IN_USE where a templated directory uses it.
	DeleteACLTemplate(ctx context.Context, by Caller, id ID) error
	// PutACLTemplateMember makes a principal a member with exactly the
	// (widened) rights. LAST_WRITER, here and below, where no member would be
	// left that can change the template for good.
	PutACLTemplateMember(ctx context.Context, by Caller, m TemplateMembership) error
	RemoveACLTemplateMember(ctx context.Context, by Caller, m TemplateMemberRef) error
}

// TemplatedDirectories are the operations on templated directories.
type TemplatedDirectories interface {
	TemplatedDirectories(ctx context.Context, by Caller) ([]TemplatedDirectory, error)
	// TemplatedDirectoriesAt compares exactly with the paths as they are stored.
	TemplatedDirectoriesAt(ctx context.Context, by Caller, paths []string) ([]TemplatedDirectory, error)
	CreateTemplatedDirectory(ctx context.Context, by Caller, n NewTemplatedDirectory) (ID, error)
	DeleteTemplatedDirectory(ctx context.Context, by Caller, id ID) error
}

// Configurations are the operations on the key server's configuration.
type Configurations interface {
	// Configuration answers the root of the whole tree as it is, secrets
	// included. xpath is what the audit row names.
	Configuration(ctx context.Context, by Caller, xpath string) (ConfigNode, error)
}

// Principals are the operations on principals.
type Principals interface {
	Principal(ctx context.Context, by Caller, id ID) (Principal, error)
	CreatePasswordPrincipal(ctx context.Context, by Caller, p NewPasswordPrincipal) (ID, error)
	// CreatePrincipal makes a principal of type ldap, xauth or group.
	CreatePrincipal(ctx context.Context, by Caller, p NewPrincipal) (ID, error)
	// ListPrincipals answers INVALID_ARGUMENT where an answer without a window
	// would hold more than MaxUnwindowed.
	ListPrincipals(ctx context.Context, by Caller, filter PrincipalFilter) (PrincipalPage, error)
	// LookupPrincipals resolves each pair on the key server that owns it. A
	// pair that cannot be resolved is left out.
	LookupPrincipals(ctx context.Context, by Caller, pairs []PrincipalRef) ([]Principal, error)
	// UpdatePrincipalFlags moves the bits that the change names. Like every
	// update, it skips a system-defined principal and reports success.
	UpdatePrincipalFlags(ctx context.Context, by Caller, change FlagChange) error
	// AddDelegate does nothing where it is named already. RemoveDelegate also clears
	// the delegation flag where it takes the last name away.
	AddDelegate(ctx context.Context, by Caller, d Delegate) error
	RemoveDelegate(ctx context.Context, by Caller, d Delegate) error
	// SetPrincipalRoles makes the roles all that a principal holds.
	SetPrincipalRoles(ctx context.Context, by Caller, r PrincipalRoles) error
	// DeletePrincipal ends a principal for good. IN_USE where it is the only owner
	// of a key or a template and there is no heir.
	DeletePrincipal(ctx context.Context, by Caller, d Departure) (DepartureDone, error)
	// GroupMembers lists by id.
	GroupMembers(ctx context.Context, by Caller, f GroupFilter) ([]Principal, error)
	// AddGroupMember does nothing where the principal is a member already.
	AddGroupMember(ctx context.Context, by Caller, m Membership) error
	RemoveGroupMember(ctx context.Context, by Caller, m Membership) error
}

// Records are what the key server tells about itself.
type Records interface {
	Version(ctx context.Context, by Caller) (Version, error)
	Audit(ctx context.Context, by Caller, filter AuditFilter) (AuditPage, error)
	// AuditReceipt proves that a row is in the audit tree (C2SP tlog-proof). NOT_FOUND
	// where there is no such row, NOT_READY where the tree does not come to it.
	AuditReceipt(ctx context.Context, by Caller, seq int64) ([]byte, error)
	// AuditCheckpoint answers how far the audit tree has grown (C2SP tlog-checkpoint).
	// As with AuditKey and the tiles of hashes, there is nothing to hide in it: it is
	// not audited, or the tree would grow by being read.
	AuditCheckpoint(ctx context.Context) ([]byte, error)
	AuditKey(ctx context.Context) (AuditKey, error)
	// Witness answers what this key server has seen of the logs of others.
	Witness(ctx context.Context, by Caller) (Witness, error)
	// AuditTile answers hashes of the tree, or the rows of a tile (C2SP tlog-tiles),
	// which take the right to read the trail. NOT_FOUND where the tree has not so many.
	AuditTile(ctx context.Context, by Caller, t AuditTile) ([]byte, error)
	// Changes reads the feed of changes.
	Changes(ctx context.Context, by Caller, f ChangeFilter) (ChangePage, error)
	// Ready reports each part. It needs no caller and is not audited.
	Ready(ctx context.Context) []Readiness
}

// Certificates are the operations on the certificates of transport principals.
type Certificates interface {
	// FindCertificates answers at most MaxCertificates, INVALID_ARGUMENT where more match.
	FindCertificates(ctx context.Context, by Caller, lookup CertificateLookup) ([]Certificate, error)
	// IssueCertificate signs a request with the internal CA and saves it.
	// Issuing does not enrol.
	IssueCertificate(ctx context.Context, by Caller, request CertificateRequest) (Issued, error)
	// RenewCertificate issues anew from the saved request and marks the old
	// certificate expired. NOT_FOUND where none with the body is current,
	// NO_SAVED_REQUEST where it was not issued here.
	RenewCertificate(ctx context.Context, by Caller, digest Digest) (Issued, error)
	// EnrollCertificates enrols all or none, and answers in the order asked.
	EnrollCertificates(ctx context.Context, by Caller, enrolment Enrolment) ([]Enrolled, error)
	// ResetTransportPrincipal drops the certificates of a transport principal
	// and ends its sessions.
	ResetTransportPrincipal(ctx context.Context, by Caller, id ID) (TransportReset, error)
}

// Revocation are the operations on revocation policies and evidence. A digest
// is spelled as the trusted list shows it.
type Revocation interface {
	// RevocationIssuers answers every trusted CA.
	RevocationIssuers(ctx context.Context, by Caller) ([]RevocationIssuer, error)
	// RevocationIssuer answers one; NOT_FOUND where no trusted CA has the digest.
	RevocationIssuer(ctx context.Context, by Caller, digest string) (RevocationIssuer, error)
	SetRevocationPolicy(ctx context.Context, by Caller, change RevocationPolicyChange) error
	// ImportCRL takes a list in place of an older one, and answers the digests
	// of the CAs that it speaks for.
	ImportCRL(ctx context.Context, by Caller, der []byte) ([]string, error)
}
