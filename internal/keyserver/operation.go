package keyserver

import (
	"slices"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
)

// Duty is the area of an operation. If duties are split, different roles have different duties.
type Duty string

// The duties.
const (
	Administration Duty = "administration"
	Trust          Duty = "trust"
	KeyUse         Duty = "key use"
	Auditing       Duty = "audit"
)

// Operation is one row of the catalogue of operations. Roles grant operations.
type Operation struct {
	ID   ID
	Key  string // camelCase, the value of operation in an audit row
	Name string // shown to people
	Duty Duty
}

// Delegable reports whether a delegated session may use the operation (contract 4.11). Only key
// use is delegable.
func (op Operation) Delegable() bool { return op.Duty == KeyUse }

// Operations is the complete catalogue, sorted by id.
var Operations []Operation

// operation adds an operation to the catalogue.
func operation(id uint64, key, name string, duty Duty) Operation {
	op := Operation{ID: values.IDFromUint64(id), Key: key, Name: name, Duty: duty}
	Operations = append(Operations, op)
	return op
}

// The operations. Ids are permanent: roles in databases and
// manifests in repositories refer to them.
var (
	OpListOperations = operation(0x0101, "listOperations", "List Operations", Administration)
	OpListRoles      = operation(0x0102, "listRoles", "List Roles", Administration)
	OpCreateRole     = operation(0x0103, "createRole", "Create Role", Administration)
	OpUpdateRole     = operation(0x0104, "updateRole", "Update Role", Administration)
	OpDeleteRole     = operation(0x0105, "deleteRole", "Delete Role", Administration)
	// OpGrantAny permits its holder to grant operations that it does not hold (contract
	// 4.9).
	OpGrantAny        = operation(0x0106, "grantAnyOperation", "Grant Any Operation", Administration)
	OpReadPrincipal   = operation(0x0111, "readPrincipal", "Read Principal", Administration)
	OpCreatePrincipal = operation(0x0112, "createPrincipal", "Create Principal", Administration)

	OpListPrincipals       = operation(0x0113, "listPrincipals", "List Principals", Administration)
	OpUpdatePrincipalFlags = operation(0x0114, "updatePrincipalFlags", "Update Principal Flags", Administration)
	OpUpdatePrincipalRoles = operation(0x0115, "updatePrincipalRoles", "Update Principal Roles", Administration)
	OpLookupPrincipals     = operation(0x0116, "lookupPrincipals", "Lookup Principals", Administration)
	OpListGroupMembers     = operation(0x0117, "listGroupMembers", "List Group Members", Administration)
	OpChangeGroupMembers   = operation(0x0118, "changeGroupMembers", "Change Group Members", Administration)

	// Never reuse 0x0117 and 0x0118 for other operations.
	OpEndSessions  = operation(0x0119, "endSessions", "End Sessions", Administration)
	OpListSessions = operation(0x011A, "listSessions", "List Sessions", Administration)

	OpDeletePrincipal = operation(0x011B, "deletePrincipal", "Delete Principal", Administration)

	OpSetPassword = operation(0x011C, "setPassword", "Set Password", Administration)

	OpReadVersion  = operation(0x0121, "readVersion", "Read Version", Administration)
	OpWatchChanges = operation(0x0122, "watchChanges", "Watch Changes", Administration)

	OpReadAuthority   = operation(0x0123, "readAuthority", "Read Authority", Trust)
	OpChangeAuthority = operation(0x0124, "changeAuthority", "Change Authority", Trust)

	OpReadOwners = operation(0x0125, "readOwners", "Read Owners", Administration)
	OpSetOwner   = operation(0x0126, "setOwner", "Set Owner", Administration)

	OpMakeBackup = operation(0x0127, "makeBackup", "Make Backup", Administration)

	OpIssueCertificate        = operation(0x0131, "issueCertificate", "Issue Certificate", Administration)
	OpRenewCertificate        = operation(0x0132, "renewCertificate", "Renew Certificate", Administration)
	OpEnrollCertificate       = operation(0x0133, "enrollCertificate", "Enroll Certificate", Administration)
	OpFindCertificates        = operation(0x0134, "findCertificates", "Find Certificates", Administration)
	OpResetTransportPrincipal = operation(0x0135, "resetTransportPrincipal", "Reset Transport Principal", Administration)

	OpReadConfiguration = operation(0x0141, "readConfiguration", "Read Configuration", Administration)

	OpReadApprovals     = operation(0x0152, "readApprovals", "Read Approvals", Administration)
	OpSetApprovalPolicy = operation(0x0153, "setApprovalPolicy", "Set Approval Policy", Administration)

	// Never reuse 0x0121 and 0x0122 for other operations.
	OpReadCustody   = operation(0x0161, "readCustody", "Read Custody", Administration)
	OpRotateDataKey = operation(0x0162, "rotateDataKey", "Rotate Data Key", Administration)

	OpListTrustedCAs  = operation(0x0201, "listTrustedCAs", "List Trusted CAs", Trust)
	OpAddTrustedCA    = operation(0x0202, "addTrustedCA", "Add Trusted CA", Trust)
	OpRemoveTrustedCA = operation(0x0203, "removeTrustedCA", "Remove Trusted CA", Trust)

	OpListTrustedServers   = operation(0x0211, "listTrustedServers", "List Trusted Servers", Trust)
	OpAddTrustedServer     = operation(0x0212, "addTrustedServer", "Add Trusted Server", Trust)
	OpUpdateTrustedServer  = operation(0x0213, "updateTrustedServer", "Update Trusted Server", Trust)
	OpRemoveTrustedServer  = operation(0x0214, "removeTrustedServer", "Remove Trusted Server", Trust)
	OpReadTrustInfo        = operation(0x0215, "readTrustInfo", "Read Trust Info", Trust)
	OpListPrincipalTrusts  = operation(0x0221, "listPrincipalTrusts", "List Principal Trusts", Trust)
	OpCreatePrincipalTrust = operation(0x0222, "createPrincipalTrust", "Create Principal Trust", Trust)
	OpUpdatePrincipalTrust = operation(0x0223, "updatePrincipalTrust", "Update Principal Trust", Trust)
	OpDeletePrincipalTrust = operation(0x0224, "deletePrincipalTrust", "Delete Principal Trust", Trust)

	OpListACLTemplates         = operation(0x0231, "listACLTemplates", "List ACL Templates", Trust)
	OpCreateACLTemplate        = operation(0x0232, "createACLTemplate", "Create ACL Template", Trust)
	OpUpdateACLTemplate        = operation(0x0233, "updateACLTemplate", "Update ACL Template", Trust)
	OpDeleteACLTemplate        = operation(0x0234, "deleteACLTemplate", "Delete ACL Template", Trust)
	OpReadACLTemplateMembers   = operation(0x0235, "readACLTemplateMembers", "Read ACL Template Members", Trust)
	OpChangeACLTemplateMembers = operation(0x0236, "changeACLTemplateMembers", "Change ACL Template Members", Trust)
	OpListTemplatedDirectories = operation(0x0241, "listTemplatedDirectories", "List Templated Directories", Trust)
	OpCreateTemplatedDirectory = operation(0x0242, "createTemplatedDirectory", "Create Templated Directory", Trust)
	OpDeleteTemplatedDirectory = operation(0x0243, "deleteTemplatedDirectory", "Delete Templated Directory", Trust)

	OpListRevocationIssuers = operation(0x0251, "listRevocationIssuers", "List Revocation Issuers", Trust)
	OpReadRevocationPolicy  = operation(0x0252, "readRevocationPolicy", "Read Revocation Policy", Trust)
	OpSetRevocationPolicy   = operation(0x0253, "setRevocationPolicy", "Set Revocation Policy", Trust)
	OpImportCRL             = operation(0x0254, "importCRL", "Import CRL", Trust)

	OpCreateKey    = operation(0x0301, "createKey", "Create Key", KeyUse)
	OpReadKey      = operation(0x0302, "readKeyMetadata", "Read Key Metadata", KeyUse)
	OpAuthorizeKey = operation(0x0303, "authorizeKey", "Authorize Key", KeyUse)
	OpHMAC         = operation(0x0304, "hmacData", "HMAC Data", KeyUse)

	OpListKeys       = operation(0x0305, "listKeys", "List Keys", KeyUse)
	OpChangeKeyState = operation(0x0306, "changeKeyState", "Change Key State", KeyUse)
	OpRotateKey      = operation(0x0307, "rotateKey", "Rotate Key", KeyUse)
	OpMACData        = operation(0x0308, "macData", "MAC Data", KeyUse)
	OpVerifyMAC      = operation(0x0309, "verifyMAC", "Verify MAC", KeyUse)
	OpEncrypt        = operation(0x030a, "encryptData", "Encrypt Data", KeyUse)
	OpDecrypt        = operation(0x030b, "decryptData", "Decrypt Data", KeyUse)

	OpReadACL   = operation(0x0311, "readACL", "Read ACL", KeyUse)
	OpAmendACL  = operation(0x0312, "amendACL", "Amend ACL", KeyUse)
	OpExportKey = operation(0x0321, "exportKey", "Export Key", KeyUse)

	OpDelegateLogin = operation(0x0331, "delegateLogin", "Delegated Login", KeyUse)

	OpReadAudit = operation(0x0401, "readAudit", "Read Audit", Auditing)
	// OpExplainAccess permits Explain and WhoCan for other principals.
	OpExplainAccess = operation(0x0402, "explainAccess", "Explain Access", Auditing)
)

// OperationOf returns the operation with an id. If the catalogue does not have it, Key and Name are the id.
func OperationOf(id ID) Operation {
	i := slices.IndexFunc(Operations, func(op Operation) bool { return op.ID == id })
	if i < 0 {
		return Operation{ID: id, Key: id.Hex(), Name: id.Hex()}
	}
	return Operations[i]
}

// EffectDestroyKey is the key of the effect that starts the destruction of a key.
const EffectDestroyKey = "destroyKey"

// Effects are parts of operations that a rule of the approval policy can guard without the
// rest of the operation. An effect has the id and the duty of its operation, but another key
// and another name.
var Effects = []Operation{
	{ID: OpChangeKeyState.ID, Key: EffectDestroyKey, Name: "destroying a key", Duty: OpChangeKeyState.Duty},
}

// AuditLogin and the constants below are the operations of audit rows that no role grants.
const (
	AuditLogin  = "login"
	AuditLogout = "logout"
	AuditProof  = "proof" // recorded when a proof is refused
	// AuditSession is recorded when a request uses a session that has ended because a principal of the session is
	// disabled, or because the delegator no longer permits the delegation.
	AuditSession = "useSession"
	// A serving process writes a row when it is ready and another when it stops. The first
	// start also writes AuditMade.
	AuditMade  = "make"
	AuditStart = "start"
	AuditStop  = "stop"
	// AuditTampered is recorded when a row of the database is refused because this key
	// server did not write it. AuditSealed is recorded when the rows of a database without
	// row MACs were accepted as genuine.
	AuditTampered = "storeTampered"
	AuditSealed   = "sealRows"
	// AuditDiscarded is recorded when rows that only a journal contained were discarded.
	AuditDiscarded = "discardJournal"
	// AuditPruned is recorded before archived rows of the audit log are removed from the
	// database.
	AuditPruned = "pruneAudit"
	// AuditRestored is recorded as the last step of a restore, before any process serves
	// from the result.
	AuditRestored = "restore"
	// AuditMigrated is recorded as the last step of a migration, before the new database
	// gets its final name.
	AuditMigrated = "migrate"
	// AuditClock is recorded when the machine's clock was set while a process ran, or
	// disagreed with the database at its start.
	AuditClock = "clockStep"
	// AuditWitness is recorded when a witnessed log has a LogConflict.
	AuditWitness = "witness"
	// AuditClosedEntries is recorded when a peer reports that one of its principals is disabled or removed, and this
	// key server ends the time windows of its ACL entries.
	AuditClosedEntries = "closeACLEntries"
	// AuditLearnedAuthority is recorded before the next authority of a peer is stored. An authority that this key
	// server trusts certifies it.
	AuditLearnedAuthority = "learnAuthority"
	// Actions on approvals need a duty instead of an operation of a role: see package
	// approval.
	AuditAskApproval     = "askApproval"
	AuditApprove         = "approve"
	AuditReject          = "reject"
	AuditWithdraw        = "withdrawApproval"
	AuditExecuteApproval = "executeApproval"
	// AuditBreakGlass is recorded before an operation that needs an approval is allowed
	// without one, by a process that was started in break-glass mode.
	AuditBreakGlass = "breakGlass"
)

// BuiltInRole is a role that the key server defines for itself.
type BuiltInRole struct {
	ID         ID
	Name       string
	Operations []Operation
}

// Deployment decides how the built-in roles share the duties.
type Deployment string

// The deployments (contract 4.3).
const (
	Unified Deployment = "unified" // Administrator also holds the Security Officer's operations
	Split   Deployment = "split"   // Administrator does not hold them
)

// The built-in roles' ids. They are permanent.
var (
	RoleAdministrator   = values.IDFromUint64(0x01)
	RoleSecurityOfficer = values.IDFromUint64(0x02)
	RoleEncryptor       = values.IDFromUint64(0x03)
	RoleExchanger       = values.IDFromUint64(0x04)
	RoleAuditor         = values.IDFromUint64(0x05)
)

// BuiltInRoles returns the built-in roles of a deployment.
func BuiltInRoles(d Deployment) []BuiltInRole {
	everybody := []Operation{OpListOperations, OpReadVersion}
	officer := []Operation{
		OpListACLTemplates, OpCreateACLTemplate, OpUpdateACLTemplate, OpDeleteACLTemplate,
		OpReadACLTemplateMembers, OpChangeACLTemplateMembers,
		OpListTemplatedDirectories, OpCreateTemplatedDirectory, OpDeleteTemplatedDirectory,
		OpListTrustedServers, OpAddTrustedServer, OpUpdateTrustedServer, OpRemoveTrustedServer, OpReadTrustInfo,
		OpListPrincipalTrusts, OpCreatePrincipalTrust, OpUpdatePrincipalTrust, OpDeletePrincipalTrust,
		OpListPrincipals, OpLookupPrincipals, OpListGroupMembers,
		OpListRoles, OpReadPrincipal, OpWatchChanges,
		OpListTrustedCAs, OpAddTrustedCA, OpRemoveTrustedCA, OpReadAudit,
		OpFindCertificates, OpListRevocationIssuers, OpReadRevocationPolicy, OpSetRevocationPolicy, OpImportCRL,
		OpReadApprovals, OpReadAuthority, OpChangeAuthority, OpReadOwners, OpSetOwner, OpExplainAccess,
	}
	administrator := []Operation{
		OpReadConfiguration,
		OpListTrustedServers, OpReadTrustInfo,
		OpListPrincipals, OpUpdatePrincipalFlags, OpUpdatePrincipalRoles, OpLookupPrincipals, OpListGroupMembers, OpChangeGroupMembers,
		OpListRoles, OpCreateRole, OpUpdateRole, OpDeleteRole,
		OpReadPrincipal, OpCreatePrincipal, OpDeletePrincipal, OpSetPassword, OpWatchChanges, OpListTrustedCAs, OpListSessions, OpEndSessions,
		OpIssueCertificate, OpRenewCertificate, OpEnrollCertificate, OpFindCertificates, OpResetTransportPrincipal,
		OpReadApprovals, OpSetApprovalPolicy, OpReadAuthority, OpReadOwners, OpSetOwner,
		OpReadCustody, OpRotateDataKey, OpMakeBackup,
	}
	if d == Split {
		// Only a holder of trust operations may grant them (contract 4.9).
		officer = append(officer, OpUpdatePrincipalRoles)
	} else {
		administrator = append(administrator, officer...)
		// Not if duties are split: a principal that may set the delegation flag must not become a Security Officer with
		// it.
		administrator = append(administrator, OpDelegateLogin)
		// Not if duties are split: a principal must not grant operations that it does not hold.
		administrator = append(administrator, OpGrantAny)
	}
	use := []Operation{OpReadKey, OpListKeys, OpAuthorizeKey, OpHMAC, OpMACData, OpVerifyMAC, OpEncrypt, OpDecrypt, OpReadACL}
	exchanger := append([]Operation{OpDelegateLogin}, use...)
	encryptor := append([]Operation{OpLookupPrincipals, OpCreateKey, OpChangeKeyState, OpRotateKey, OpAmendACL, OpExportKey}, use...)
	auditor := []Operation{OpListACLTemplates, OpReadACLTemplateMembers, OpListTemplatedDirectories, OpReadConfiguration,
		OpListTrustedServers, OpListPrincipalTrusts, OpListRoles, OpReadPrincipal, OpListPrincipals, OpListGroupMembers, OpListTrustedCAs, OpWatchChanges, OpReadAudit,
		OpFindCertificates, OpListRevocationIssuers, OpReadRevocationPolicy, OpReadApprovals, OpReadAuthority, OpReadOwners, OpExplainAccess}
	roles := []BuiltInRole{
		{RoleAdministrator, "Administrator", administrator},
		{RoleSecurityOfficer, "Security Officer", officer},
		{RoleEncryptor, "Encryptor", encryptor},
		{RoleExchanger, "Exchanger", exchanger},
		{RoleAuditor, "Auditor", auditor},
	}
	for i := range roles {
		roles[i].Operations = append(roles[i].Operations, everybody...)
	}
	return roles
}

// Role returns the built-in role as a role.
func (b BuiltInRole) Role() Role {
	ids := make([]ID, len(b.Operations))
	for i, op := range b.Operations {
		ids[i] = op.ID
	}
	return Role{ID: b.ID, Name: b.Name, BuiltIn: true, Operations: NormalizeIDs(ids)}
}
