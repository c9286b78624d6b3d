package httpapi

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/session"
	"github.com/keyserver-operator/keyserver-operator/internal/verified"
)

// Operations is what the edge asks for. When the verdict of a verified write
// is bad, a method returns both the filled result and the fault.
type Operations interface {
	keys
	acls
	roles
	trustedCAs
	aclTemplates
	directories
	configurations
	trustedServers
	principalTrusts
	principals
	certificates
	revocation
	records
}

type keys interface {
	MintKey(ctx context.Context, by keyserver.Caller, key keyserver.NewKey) (keyserver.KeyMetadata, error)
	Key(ctx context.Context, by keyserver.Caller, link keyserver.HiddenLink) (keyserver.KeyMetadata, error)
	AuthorizeKey(ctx context.Context, by keyserver.Caller, use keyserver.Use) (keyserver.Grant, error)
	HMAC(ctx context.Context, by keyserver.Caller, r keyserver.HMACRequest) ([keyserver.MACSize]byte, error)
	ExportKey(ctx context.Context, by keyserver.Caller, x keyserver.KeyExport) (keyserver.ExportedKey, error)
}

type acls interface {
	GrantACL(ctx context.Context, by keyserver.Caller, c keyserver.ACLChange) (verified.ACLResult, error)
	AmendACL(ctx context.Context, by keyserver.Caller, c keyserver.ACLChange) (verified.ACLResult, error)
	RevokeACL(ctx context.Context, by keyserver.Caller, r keyserver.ACLRevocation) (verified.ACLResult, error)
	ACL(ctx context.Context, by keyserver.Caller, link keyserver.HiddenLink) (verified.ACLResult, error)
}

type roles interface {
	ListOperations(ctx context.Context, by keyserver.Caller) ([]keyserver.Operation, error)
	Roles(ctx context.Context, by keyserver.Caller) ([]keyserver.Role, error)
	CreateRole(ctx context.Context, by keyserver.Caller, n keyserver.NewRole) (verified.RoleResult, error)
	UpdateRole(ctx context.Context, by keyserver.Caller, c keyserver.RoleChange) (verified.RoleResult, error)
	DeleteRole(ctx context.Context, by keyserver.Caller, id keyserver.ID) (verified.RoleGone, error)
}

type trustedCAs interface {
	TrustedCAs(ctx context.Context, by keyserver.Caller) ([]keyserver.Certificate, error)
	AddTrustedCA(ctx context.Context, by keyserver.Caller, der []byte) (verified.TrustedCAAdded, error)
	RemoveTrustedCA(ctx context.Context, by keyserver.Caller, id keyserver.ID) (verified.TrustedCARemoved, error)
}

type trustedServers interface {
	TrustedServers(ctx context.Context, by keyserver.Caller) ([]keyserver.TrustedServer, error)
	TrustedServersNamed(ctx context.Context, by keyserver.Caller, name string) ([]keyserver.TrustedServer, error)
	AddTrustedServer(ctx context.Context, by keyserver.Caller, n keyserver.NewTrustedServer) (verified.TrustedServerSaved, error)
	UpdateTrustedServer(ctx context.Context, by keyserver.Caller, c keyserver.TrustedServerChange) (verified.TrustedServerUpdated, error)
	RemoveTrustedServer(ctx context.Context, by keyserver.Caller, system keyserver.SystemID) (verified.TrustedServerGone, error)
	TrustInfo(ctx context.Context, by keyserver.Caller) (keyserver.TrustInfo, error)
}

type principalTrusts interface {
	PrincipalTrusts(ctx context.Context, by keyserver.Caller, filter keyserver.PrincipalTrustFilter) ([]keyserver.PrincipalTrust, error)
	CreatePrincipalTrust(ctx context.Context, by keyserver.Caller, t keyserver.PrincipalTrust) (verified.PrincipalTrustSaved, error)
	UpdatePrincipalTrust(ctx context.Context, by keyserver.Caller, c keyserver.PrincipalTrustChange) (verified.PrincipalTrustSaved, error)
	DeletePrincipalTrust(ctx context.Context, by keyserver.Caller, id keyserver.ID) (verified.PrincipalTrustGone, error)
}

type aclTemplates interface {
	ACLTemplates(ctx context.Context, by keyserver.Caller) ([]keyserver.ACLTemplate, error)
	ACLTemplate(ctx context.Context, by keyserver.Caller, id keyserver.ID) (keyserver.ACLTemplate, error)
	CreateACLTemplate(ctx context.Context, by keyserver.Caller, name string) (verified.ACLTemplateResult, error)
	RenameACLTemplate(ctx context.Context, by keyserver.Caller, c keyserver.ACLTemplateChange) (verified.ACLTemplateResult, error)
	DeleteACLTemplate(ctx context.Context, by keyserver.Caller, id keyserver.ID) (verified.ACLTemplateGone, error)
	PutTemplateMember(ctx context.Context, by keyserver.Caller, m keyserver.TemplateMembership) (verified.TemplateMemberResult, error)
	RemoveTemplateMember(ctx context.Context, by keyserver.Caller, m keyserver.TemplateMemberRef) (verified.TemplateMemberResult, error)
}

type directories interface {
	TemplatedDirectories(ctx context.Context, by keyserver.Caller, f keyserver.TemplatedDirectoryFilter) (verified.DirectoryList, error)
	CreateTemplatedDirectory(ctx context.Context, by keyserver.Caller, n keyserver.NewTemplatedDirectory) (verified.DirectoryResult, error)
	DeleteTemplatedDirectory(ctx context.Context, by keyserver.Caller, id keyserver.ID) (verified.DirectoryGone, error)
}

type configurations interface {
	Configuration(ctx context.Context, by keyserver.Caller, xpath string) (verified.ConfigResult, error)
}

type principals interface {
	Principal(ctx context.Context, by keyserver.Caller, id keyserver.ID) (keyserver.Principal, error)
	CreatePasswordPrincipal(ctx context.Context, by keyserver.Caller, p keyserver.NewPasswordPrincipal) (verified.PrincipalSaved, error)
	CreatePrincipal(ctx context.Context, by keyserver.Caller, p keyserver.NewPrincipal) (verified.PrincipalSaved, error)
	ListPrincipals(ctx context.Context, by keyserver.Caller, filter keyserver.PrincipalFilter) (keyserver.PrincipalPage, error)
	LookupPrincipals(ctx context.Context, by keyserver.Caller, pairs []keyserver.PrincipalRef) ([]keyserver.Principal, error)
	UpdatePrincipalFlags(ctx context.Context, by keyserver.Caller, c keyserver.FlagChange) (verified.FlagsResult, error)
	SetPrincipalRoles(ctx context.Context, by keyserver.Caller, r keyserver.PrincipalRoles) (verified.RolesResult, error)
	GroupMembers(ctx context.Context, by keyserver.Caller, f keyserver.GroupFilter) ([]keyserver.Principal, error)
	AddGroupMember(ctx context.Context, by keyserver.Caller, m keyserver.Membership) (verified.MembershipResult, error)
	RemoveGroupMember(ctx context.Context, by keyserver.Caller, m keyserver.Membership) (verified.MembershipResult, error)
}

type certificates interface {
	CertificatesBySubject(ctx context.Context, by keyserver.Caller, pattern string) (verified.CertificatesFound, error)
	CertificatesByTransportPrincipal(ctx context.Context, by keyserver.Caller, subject string) (verified.CertificatesFound, error)
	IssueCertificate(ctx context.Context, by keyserver.Caller, n keyserver.CertificateRequest) (verified.CertificateIssued, error)
	RenewCertificate(ctx context.Context, by keyserver.Caller, der []byte) (verified.CertificateIssued, error)
	EnrollCertificates(ctx context.Context, by keyserver.Caller, n keyserver.Enrolment) (verified.CertificatesEnrolled, error)
	ResetTransportPrincipal(ctx context.Context, by keyserver.Caller, id keyserver.ID) (verified.TransportReset, error)
}

type revocation interface {
	RevocationIssuers(ctx context.Context, by keyserver.Caller) ([]keyserver.RevocationIssuer, error)
	RevocationPolicy(ctx context.Context, by keyserver.Caller, digest string) (keyserver.RevocationPolicy, error)
	SetRevocationPolicy(ctx context.Context, by keyserver.Caller, c keyserver.RevocationPolicyChange) (verified.PolicySaved, error)
	ImportCRL(ctx context.Context, by keyserver.Caller, der []byte) (verified.CRLImported, error)
}

type records interface {
	Version(ctx context.Context, by keyserver.Caller) (keyserver.Version, error)
	Audit(ctx context.Context, by keyserver.Caller, filter keyserver.AuditFilter) (keyserver.AuditPage, error)
	Changes(ctx context.Context, by keyserver.Caller, f keyserver.ChangeFilter) (keyserver.ChangePage, error)
	Ready(ctx context.Context) []keyserver.Readiness
}

// Sessions opens sessions and finds the caller of a request.
type Sessions interface {
	Login(ctx context.Context, login session.Login) (session.Opened, error)
	// Authenticate returns the caller behind a session id, and what to call
	// when the request is over.
	Authenticate(ctx context.Context, token string, proof session.Proof, requestID string) (keyserver.Caller, func(), error)
	Current(ctx context.Context, by keyserver.Caller) (session.Info, error)
	End(ctx context.Context, by keyserver.Caller) error
}
