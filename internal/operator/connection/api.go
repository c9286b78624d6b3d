package connection

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/tracing"
)

// API has the calls that the manager makes to one key server, with one login. Package client implements API. Tests use
// key servers that return false responses. If the response of a write does not prove the write, the call returns an
// error (schema's MissingEvidence).
type API interface {
	GetReadiness(ctx context.Context) (schema.Ready, error)
	GetVersion(ctx context.Context) (schema.Version, error)
	ListChanges(ctx context.Context, in schema.ChangesQuery) (schema.ChangePage, error)

	ListTrustedCAs(ctx context.Context, in schema.TrustedCAsQuery) (schema.TrustedCAList, error)
	AddTrustedCA(ctx context.Context, in schema.AddTrustedCARequest) (schema.TrustedCAAdded, error)
	RemoveTrustedCA(ctx context.Context, in schema.RemoveTrustedCARequest) (schema.TrustedCARemoved, error)

	ListRevocationIssuers(ctx context.Context) (schema.RevocationIssuerList, error)
	SetRevocationPolicy(ctx context.Context, in schema.SetRevocationPolicyRequest) (schema.RevocationPolicySaved, error)
	ImportCRL(ctx context.Context, in schema.ImportCRLRequest) (schema.CRLImported, error)

	ListOperations(ctx context.Context) (schema.OperationList, error)
	ListRoles(ctx context.Context) (schema.RoleList, error)
	CreateRole(ctx context.Context, in schema.CreateRoleRequest) (schema.RoleSaved, error)
	UpdateRole(ctx context.Context, in schema.UpdateRoleRequest) (schema.RoleSaved, error)
	DeleteRole(ctx context.Context, in schema.ByID) (schema.RoleGone, error)

	ListTrustedServers(ctx context.Context, in schema.TrustedServersQuery) (schema.TrustedServerList, error)
	AddTrustedServer(ctx context.Context, in schema.AddTrustedServerRequest) (schema.TrustedServerSaved, error)
	UpdateTrustedServer(ctx context.Context, in schema.UpdateTrustedServerRequest) (schema.TrustedServerUpdated, error)
	RemoveTrustedServer(ctx context.Context, in schema.BySystemID) (schema.TrustedServerGone, error)
	GetLocalTrustInfo(ctx context.Context) (schema.TrustInfo, error)

	ListPrincipalTrusts(ctx context.Context, in schema.PrincipalTrustsQuery) (schema.PrincipalTrustList, error)
	CreatePrincipalTrust(ctx context.Context, in schema.CreatePrincipalTrustRequest) (schema.PrincipalTrustSaved, error)
	UpdatePrincipalTrust(ctx context.Context, in schema.UpdatePrincipalTrustRequest) (schema.PrincipalTrustSaved, error)
	DeletePrincipalTrust(ctx context.Context, in schema.ByID) (schema.PrincipalTrustGone, error)

	ListPrincipals(ctx context.Context, in schema.PrincipalQuery) (schema.PrincipalPage, error)
	GetPrincipal(ctx context.Context, in schema.ByID) (schema.Principal, error)
	CreateXAuthPrincipal(ctx context.Context, in schema.CreateXAuthPrincipalRequest) (schema.PrincipalSaved, error)
	CreateLDAPPrincipal(ctx context.Context, in schema.CreateLDAPPrincipalRequest) (schema.PrincipalSaved, error)
	CreateGroup(ctx context.Context, in schema.CreateGroupRequest) (schema.PrincipalSaved, error)
	UpdatePrincipalRoles(ctx context.Context, in schema.UpdatePrincipalRolesRequest) (schema.PrincipalRolesSaved, error)
	UpdatePrincipalFlags(ctx context.Context, in schema.UpdatePrincipalFlagsRequest) (schema.PrincipalFlagsSaved, error)
	AddDelegate(ctx context.Context, in schema.DelegateRequest) (schema.DelegateSaved, error)
	RemoveDelegate(ctx context.Context, in schema.DelegateRequest) (schema.DelegateGone, error)
	AddGroupMember(ctx context.Context, in schema.GroupMemberRequest) (schema.GroupMemberSaved, error)
	RemoveGroupMember(ctx context.Context, in schema.GroupMemberRequest) (schema.GroupMemberGone, error)
	DeletePrincipal(ctx context.Context, in schema.DeletePrincipalRequest) (schema.PrincipalGone, error)

	IssueCertificate(ctx context.Context, in schema.IssueCertificateRequest) (schema.CertificateIssued, error)
	EnrollCertificates(ctx context.Context, in schema.EnrollCertificatesRequest) (schema.CertificatesEnrolled, error)
	FindCertificatesBySubject(ctx context.Context, in schema.CertificatesRequest) (schema.CertificatesFound, error)
	FindCertificatesByTransportPrincipal(ctx context.Context, in schema.CertificatesRequest) (schema.TransportCertificates, error)

	ListOwners(ctx context.Context, in schema.OwnerQuery) (schema.OwnerList, error)
	SetOwner(ctx context.Context, in schema.SetOwnerRequest) (schema.OwnerSaved, error)
	ReleaseOwner(ctx context.Context, in schema.ReleaseOwnerRequest) (schema.OwnerReleased, error)

	GetWitness(ctx context.Context) (schema.Witness, error)
	GetAuditKey(ctx context.Context) (schema.AuditKey, error)
	GetAuditCheckpoint(ctx context.Context) (schema.Text, error)

	GetCurrentSession(ctx context.Context) (schema.Session, error)

	ListACLTemplates(ctx context.Context, in schema.ACLTemplateQuery) (schema.ACLTemplateList, error)
	CreateACLTemplate(ctx context.Context, in schema.ACLTemplateRequest) (schema.ACLTemplateSaved, error)
	RenameACLTemplate(ctx context.Context, in schema.RenameACLTemplateRequest) (schema.ACLTemplateSaved, error)
	DeleteACLTemplate(ctx context.Context, in schema.ByID) (schema.ACLTemplateGone, error)
	ListACLTemplateMembers(ctx context.Context, in schema.ByID) (schema.TemplateMemberList, error)
	SetACLTemplateMember(ctx context.Context, in schema.SetACLTemplateMemberRequest) (schema.TemplateMemberSaved, error)
	RemoveACLTemplateMember(ctx context.Context, in schema.RemoveACLTemplateMemberRequest) (schema.TemplateMemberGone, error)

	MintKey(ctx context.Context, in schema.MintKeyRequest) (schema.KeyMetadata, error)
	ListKeys(ctx context.Context, in schema.KeyQuery) (schema.KeyListing, error)
	SetKeyRotation(ctx context.Context, in schema.KeyRotationRequest) (schema.KeyRotationSaved, error)
	DestroyKey(ctx context.Context, in schema.DestroyKeyRequest) (schema.KeyStateSaved, error)
	GetACL(ctx context.Context, in schema.KeyRequest) (schema.ACLResponse, error)
	GrantACL(ctx context.Context, in schema.ACLChangeRequest) (schema.ACLResponse, error)
	UpdateACL(ctx context.Context, in schema.ACLChangeRequest) (schema.ACLResponse, error)
	RevokeACL(ctx context.Context, in schema.ACLRevokeRequest) (schema.ACLResponse, error)

	ListTemplatedDirectories(ctx context.Context, in schema.TemplatedDirectoryQuery) (schema.TemplatedDirectoryList, error)
	CreateTemplatedDirectory(ctx context.Context, in schema.CreateTemplatedDirectoryRequest) (schema.TemplatedDirectorySaved, error)
	DeleteTemplatedDirectory(ctx context.Context, in schema.ByID) (schema.TemplatedDirectoryGone, error)
}

var _ API = (*client.Client)(nil)

// For returns a context whose calls give their purpose to the key server, for its audit log.
func For(ctx context.Context, what string) context.Context { return client.For(ctx, what) }

// OwnedBy returns a context for calls that create objects. The key server sets the owner mark of owner on each created
// object, in the same transaction.
func OwnedBy(ctx context.Context, owner string) context.Context { return client.OwnedBy(ctx, owner) }

// Endpoint has the address of a key server and the credentials for the login.
type Endpoint struct {
	// Credential names the Secret or file of the password or token, for messages. It never has the secret itself.
	Credential string
	BaseURL    string
	ProofURL   string         // the URL for which DPoP proofs are made; empty: BaseURL
	RootCAs    *x509.CertPool // nil means the system's roots
	Username   string
	// Password is read at each login and not stored.
	Password func(context.Context) (string, error)
	// TokenFile has a service account token for the login, which is read at each login. If TokenFile is empty, Password is
	// used.
	TokenFile string
	// Observe is called after each call (client.Options). Connections sets Observe.
	Observe func(route string, err error)
}

// Dial returns an API for an endpoint. It sends no request.
type Dial func(Endpoint) (API, error)

// Bounds of one call. The connection retries for longer than this.
const (
	CallTimeout = 15 * time.Second
	CallRetries = 1
)

// DialHTTP returns an API that calls the key server over HTTP.
func DialHTTP(e Endpoint) (API, error) { return DialTraced(nil)(e) }

// DialTraced is DialHTTP with a span for each attempt at a call if tracer is not nil.
func DialTraced(tracer *tracing.Tracer) Dial {
	return func(e Endpoint) (API, error) {
		o, err := options(e)
		if err != nil {
			return nil, err
		}
		o.UserAgent, o.MaxRetries, o.Timeout, o.Observe = "keyserver-operator-manager", CallRetries, CallTimeout, e.Observe
		if tracer != nil {
			o.Trace = func(ctx context.Context, route string, header http.Header) (context.Context, func(error)) {
				ctx, span := tracer.StartClientSpan(ctx, "call "+route, propagation.HeaderCarrier(header))
				return ctx, func(err error) { span.End(codeUnless(err)) }
			}
		}
		return client.New(o)
	}
}

// options returns the URL and credentials of the manager's logins. Sessions are bound to a key that is generated here
// and stored nowhere else, so that a stolen session id is useless. If ProofURL is unknown, password sessions are not
// bound: the key server would reject proofs for another URL, and the manager could no longer log in.
func options(e Endpoint) (client.Options, error) {
	o := client.Options{BaseURL: e.BaseURL, ProofURL: e.ProofURL, RootCAs: e.RootCAs}
	if e.TokenFile != "" {
		o.Credentials = client.KubernetesCredentials(e.TokenFile)
	} else {
		o.Credentials = client.PasswordCredentials(e.Username, e.Password)
		if e.ProofURL == "" {
			return o, nil
		}
	}
	var err error
	o.ProofKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return o, err
}
