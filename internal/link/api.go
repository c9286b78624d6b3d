package link

import (
	"context"
	"crypto/x509"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// API is what the controllers ask of one service, as one identity.
// *client.Client implements it; tests put a service behind it that lies.
type API interface {
	Ready(ctx context.Context) (schema.Ready, error)
	Version(ctx context.Context) (schema.Version, error)
	Changes(ctx context.Context, after int64, wait time.Duration) (schema.ChangePage, error)

	TrustedCAs(ctx context.Context) (schema.TrustedCAList, error)
	AddTrustedCA(ctx context.Context, der []byte) (schema.TrustedCAAdded, error)
	RemoveTrustedCA(ctx context.Context, certificateID string) (schema.TrustedCARemoved, error)

	Operations(ctx context.Context) (schema.OperationList, error)
	Roles(ctx context.Context) (schema.RoleList, error)
	CreateRole(ctx context.Context, name string, operations []string) (schema.RoleSaved, error)
	UpdateRole(ctx context.Context, id string, change schema.UpdateRoleRequest) (schema.RoleSaved, error)
	DeleteRole(ctx context.Context, id string) (schema.RoleGone, error)

	TrustedServerBodies(ctx context.Context) (schema.TrustedServerList, error)
	AddTrustedServer(ctx context.Context, trustBlob, friendlyName, description string) (schema.TrustedServerSaved, error)
	ReplaceTrustedServer(ctx context.Context, trustBlob, friendlyName, description string) (schema.TrustedServerSaved, error)
	TrustInfo(ctx context.Context) (schema.TrustInfo, error)
	UpdateTrustedServer(ctx context.Context, systemID uint32, change schema.UpdateTrustedServerRequest) (schema.TrustedServerUpdated, error)
	RemoveTrustedServer(ctx context.Context, systemID uint32) (schema.TrustedServerGone, error)

	PrincipalTrusts(ctx context.Context, q schema.PrincipalTrustsQuery) (schema.PrincipalTrustList, error)
	CreatePrincipalTrust(ctx context.Context, in schema.CreatePrincipalTrustRequest) (schema.PrincipalTrustSaved, error)
	UpdatePrincipalTrust(ctx context.Context, id, flag string) (schema.PrincipalTrustSaved, error)
	DeletePrincipalTrust(ctx context.Context, id string) (schema.PrincipalTrustGone, error)

	Principals(ctx context.Context, q schema.PrincipalQuery) (schema.PrincipalPage, error)

	CurrentSession(ctx context.Context) (schema.Session, error)

	ACLTemplates(ctx context.Context) (schema.ACLTemplateList, error)
	CreateACLTemplate(ctx context.Context, name string) (schema.ACLTemplateSaved, error)
	RenameACLTemplate(ctx context.Context, id, name string) (schema.ACLTemplateSaved, error)
	DeleteACLTemplate(ctx context.Context, id string) (schema.ACLTemplateGone, error)
	TemplateMembers(ctx context.Context, id string) (schema.TemplateMemberList, error)
	PutTemplateMember(ctx context.Context, id string, member schema.TemplateMemberRequest) (schema.TemplateMemberSaved, error)
	RemoveTemplateMember(ctx context.Context, id string, system schema.SystemID, principal schema.DecimalID) (schema.TemplateMemberGone, error)

	TemplatedDirectories(ctx context.Context, q schema.TemplatedDirectoryQuery) (schema.TemplatedDirectoryList, error)
	CreateTemplatedDirectory(ctx context.Context, in schema.CreateTemplatedDirectoryRequest) (schema.TemplatedDirectorySaved, error)
	DeleteTemplatedDirectory(ctx context.Context, id string) (schema.TemplatedDirectoryGone, error)
}

var _ API = (*client.Client)(nil)

// Endpoint is where and as whom to log in.
type Endpoint struct {
	BaseURL  string
	RootCAs  *x509.CertPool // nil means the system's roots
	Username string
	// Password is read at each login and kept nowhere.
	Password func(context.Context) (string, error)
}

// Dial makes an API for an endpoint. It speaks to nobody yet.
type Dial func(Endpoint) (API, error)

// The gate retries with more patience than the client needs to have.
const (
	CallTimeout = 15 * time.Second
	CallRetries = 1
)

// DialHTTP is the Dial of the manager.
func DialHTTP(e Endpoint) (API, error) {
	return client.New(client.Options{
		BaseURL:     e.BaseURL,
		RootCAs:     e.RootCAs,
		Credentials: client.PasswordCredentials(e.Username, e.Password),
		UserAgent:   "keyserver-operator-manager",
		MaxRetries:  CallRetries,
		Timeout:     CallTimeout,
	})
}

// counted counts the calls of an API by their code.
type counted struct {
	API
	requests *prometheus.CounterVec // labels call, code
}

func count[Out any](c counted, call string, out Out, err error) (Out, error) {
	c.requests.WithLabelValues(call, codeLabel(err)).Inc()
	return out, err
}

// codeLabel is bounded: the codes are a catalogue.
func codeLabel(err error) string {
	switch {
	case err == nil:
		return "OK"
	case client.CodeOf(err) != "":
		return client.CodeOf(err)
	case client.IsUnavailable(err):
		return "UNAVAILABLE"
	default:
		return "OTHER"
	}
}

func (c counted) Ready(ctx context.Context) (schema.Ready, error) {
	out, err := c.API.Ready(ctx)
	return count(c, "ready", out, err)
}

func (c counted) Version(ctx context.Context) (schema.Version, error) {
	out, err := c.API.Version(ctx)
	return count(c, "version", out, err)
}

func (c counted) Changes(ctx context.Context, after int64, wait time.Duration) (schema.ChangePage, error) {
	out, err := c.API.Changes(ctx, after, wait)
	return count(c, "changes", out, err)
}

func (c counted) TrustedCAs(ctx context.Context) (schema.TrustedCAList, error) {
	out, err := c.API.TrustedCAs(ctx)
	return count(c, "listTrustedCAs", out, err)
}

func (c counted) AddTrustedCA(ctx context.Context, der []byte) (schema.TrustedCAAdded, error) {
	out, err := c.API.AddTrustedCA(ctx, der)
	return count(c, "addTrustedCA", out, err)
}

func (c counted) RemoveTrustedCA(ctx context.Context, certificateID string) (schema.TrustedCARemoved, error) {
	out, err := c.API.RemoveTrustedCA(ctx, certificateID)
	return count(c, "removeTrustedCA", out, err)
}

func (c counted) Operations(ctx context.Context) (schema.OperationList, error) {
	out, err := c.API.Operations(ctx)
	return count(c, "listOperations", out, err)
}

func (c counted) Roles(ctx context.Context) (schema.RoleList, error) {
	out, err := c.API.Roles(ctx)
	return count(c, "listRoles", out, err)
}

func (c counted) CreateRole(ctx context.Context, name string, operations []string) (schema.RoleSaved, error) {
	out, err := c.API.CreateRole(ctx, name, operations)
	return count(c, "createRole", out, err)
}

func (c counted) UpdateRole(ctx context.Context, id string, change schema.UpdateRoleRequest) (schema.RoleSaved, error) {
	out, err := c.API.UpdateRole(ctx, id, change)
	return count(c, "updateRole", out, err)
}

func (c counted) DeleteRole(ctx context.Context, id string) (schema.RoleGone, error) {
	out, err := c.API.DeleteRole(ctx, id)
	return count(c, "deleteRole", out, err)
}

func (c counted) TrustedServerBodies(ctx context.Context) (schema.TrustedServerList, error) {
	out, err := c.API.TrustedServerBodies(ctx)
	return count(c, "listTrustedServers", out, err)
}

func (c counted) TrustInfo(ctx context.Context) (schema.TrustInfo, error) {
	out, err := c.API.TrustInfo(ctx)
	return count(c, "readTrustInfo", out, err)
}

func (c counted) AddTrustedServer(ctx context.Context, trustBlob, friendlyName, description string) (schema.TrustedServerSaved, error) {
	out, err := c.API.AddTrustedServer(ctx, trustBlob, friendlyName, description)
	return count(c, "addTrustedServer", out, err)
}

func (c counted) ReplaceTrustedServer(ctx context.Context, trustBlob, friendlyName, description string) (schema.TrustedServerSaved, error) {
	out, err := c.API.ReplaceTrustedServer(ctx, trustBlob, friendlyName, description)
	return count(c, "replaceTrustedServer", out, err)
}

func (c counted) UpdateTrustedServer(ctx context.Context, systemID uint32, change schema.UpdateTrustedServerRequest) (schema.TrustedServerUpdated, error) {
	out, err := c.API.UpdateTrustedServer(ctx, systemID, change)
	return count(c, "updateTrustedServer", out, err)
}

func (c counted) RemoveTrustedServer(ctx context.Context, systemID uint32) (schema.TrustedServerGone, error) {
	out, err := c.API.RemoveTrustedServer(ctx, systemID)
	return count(c, "removeTrustedServer", out, err)
}

func (c counted) PrincipalTrusts(ctx context.Context, q schema.PrincipalTrustsQuery) (schema.PrincipalTrustList, error) {
	out, err := c.API.PrincipalTrusts(ctx, q)
	return count(c, "listPrincipalTrusts", out, err)
}

func (c counted) CreatePrincipalTrust(ctx context.Context, in schema.CreatePrincipalTrustRequest) (schema.PrincipalTrustSaved, error) {
	out, err := c.API.CreatePrincipalTrust(ctx, in)
	return count(c, "createPrincipalTrust", out, err)
}

func (c counted) UpdatePrincipalTrust(ctx context.Context, id, flag string) (schema.PrincipalTrustSaved, error) {
	out, err := c.API.UpdatePrincipalTrust(ctx, id, flag)
	return count(c, "updatePrincipalTrust", out, err)
}

func (c counted) DeletePrincipalTrust(ctx context.Context, id string) (schema.PrincipalTrustGone, error) {
	out, err := c.API.DeletePrincipalTrust(ctx, id)
	return count(c, "deletePrincipalTrust", out, err)
}

func (c counted) Principals(ctx context.Context, q schema.PrincipalQuery) (schema.PrincipalPage, error) {
	out, err := c.API.Principals(ctx, q)
	return count(c, "listPrincipals", out, err)
}

func (c counted) CurrentSession(ctx context.Context) (schema.Session, error) {
	out, err := c.API.CurrentSession(ctx)
	return count(c, "currentSession", out, err)
}

func (c counted) ACLTemplates(ctx context.Context) (schema.ACLTemplateList, error) {
	out, err := c.API.ACLTemplates(ctx)
	return count(c, "listACLTemplates", out, err)
}

func (c counted) CreateACLTemplate(ctx context.Context, name string) (schema.ACLTemplateSaved, error) {
	out, err := c.API.CreateACLTemplate(ctx, name)
	return count(c, "createACLTemplate", out, err)
}

func (c counted) RenameACLTemplate(ctx context.Context, id, name string) (schema.ACLTemplateSaved, error) {
	out, err := c.API.RenameACLTemplate(ctx, id, name)
	return count(c, "renameACLTemplate", out, err)
}

func (c counted) DeleteACLTemplate(ctx context.Context, id string) (schema.ACLTemplateGone, error) {
	out, err := c.API.DeleteACLTemplate(ctx, id)
	return count(c, "deleteACLTemplate", out, err)
}

func (c counted) TemplateMembers(ctx context.Context, id string) (schema.TemplateMemberList, error) {
	out, err := c.API.TemplateMembers(ctx, id)
	return count(c, "listTemplateMembers", out, err)
}

func (c counted) PutTemplateMember(ctx context.Context, id string, member schema.TemplateMemberRequest) (schema.TemplateMemberSaved, error) {
	out, err := c.API.PutTemplateMember(ctx, id, member)
	return count(c, "putTemplateMember", out, err)
}

func (c counted) RemoveTemplateMember(ctx context.Context, id string, system schema.SystemID, principal schema.DecimalID) (schema.TemplateMemberGone, error) {
	out, err := c.API.RemoveTemplateMember(ctx, id, system, principal)
	return count(c, "removeTemplateMember", out, err)
}

func (c counted) TemplatedDirectories(ctx context.Context, q schema.TemplatedDirectoryQuery) (schema.TemplatedDirectoryList, error) {
	out, err := c.API.TemplatedDirectories(ctx, q)
	return count(c, "listTemplatedDirectories", out, err)
}

func (c counted) CreateTemplatedDirectory(ctx context.Context, in schema.CreateTemplatedDirectoryRequest) (schema.TemplatedDirectorySaved, error) {
	out, err := c.API.CreateTemplatedDirectory(ctx, in)
	return count(c, "createTemplatedDirectory", out, err)
}

func (c counted) DeleteTemplatedDirectory(ctx context.Context, id string) (schema.TemplatedDirectoryGone, error) {
	out, err := c.API.DeleteTemplatedDirectory(ctx, id)
	return count(c, "deleteTemplatedDirectory", out, err)
}
