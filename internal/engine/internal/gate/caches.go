package gate

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/approval"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/cache"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Maximum numbers of entries in the caches.
const (
	maxCachedPrincipals = 16384
	maxCachedRoles      = 4096
	maxCachedDelegators = 1024

	// MaxCachedIssuers is small because each entry may hold the serial numbers of an entire CRL.
	MaxCachedIssuers = 64
)

// Auditor writes rows to the audit log.
type Auditor interface {
	// Write returns nil when the row is durable.
	Write(ctx context.Context, entry keyserver.AuditEntry) error
	// Begin starts to write a row. It returns a function that waits until the row is durable. The caller must call that
	// function.
	Begin(ctx context.Context, entry keyserver.AuditEntry) (durable func() error, err error)
	// WriteAll is Write for several rows. One commit writes either all rows or none. It ignores the end of ctx.
	WriteAll(ctx context.Context, entries []keyserver.AuditEntry) error
}

// Base has the dependencies that the gate shares with the operations. Peers is nil if there is no client for other key
// servers.
type Base struct {
	Store      *sqlstore.Store // never nil: the caches read from it
	System     keyserver.SystemID
	Deployment keyserver.Deployment // empty is unified
	Clock      func() time.Time
	Random     io.Reader
	Logger     *slog.Logger
	Peers      Peers
}

// Config has the dependencies and settings of a gate.
type Config struct {
	Base
	Auditor Auditor
	// BreakGlass allows operations without the approval that they need.
	BreakGlass bool
	// LimitRefusals limits the number of refused operations of each principal.
	LimitRefusals bool
}

// Gate authorizes and audits operations. It is safe for concurrent use.
type Gate struct {
	Base
	auditor    Auditor
	breakGlass bool
	refusals   *refusedMeter // nil if refusals are not limited
	// view is set if the gate only explains a request: see view.go.
	view *View

	caches       cache.Set
	principals   *cache.ByID[keyserver.Principal]
	roles        *cache.ByID[keyserver.Role]
	certificates *cache.ByID[keyserver.Certificate]
	issuers      *cache.Cache[string, Evidence]
	anchors      *cache.Cache[keyserver.ID, time.Time]               // end of validity of a certificate's CA
	enrolled     *cache.Cache[keyserver.ID, []keyserver.Certificate] // the current certificates of a delegator
	peers        *cache.ByID[keyserver.TrustedServer]                // by system id, as in the change feed
	trusts       *cache.Cache[trustKey, []keyserver.PrincipalTrust]
	policies     *cache.Cache[keyserver.Deployment, approval.Policy] // a single entry
}

// New returns a gate with empty caches. Call Changed for each change that the store announces.
func New(c Config) *Gate {
	g := &Gate{Base: c.Base, auditor: c.Auditor, breakGlass: c.BreakGlass}
	if c.LimitRefusals {
		g.refusals = newRefusals(c.Clock)
	}
	g.resetCaches()
	return g
}

// resetCaches replaces the caches by empty ones.
func (g *Gate) resetCaches() {
	g.caches = nil
	g.principals = cache.NewByID(&g.caches, maxCachedPrincipals, keyserver.ChangePrincipal, g.Store.Principal)
	g.roles = cache.NewByID(&g.caches, maxCachedRoles, keyserver.ChangeRole, g.Store.Role)
	g.certificates = cache.NewByID(&g.caches, maxCachedPrincipals, keyserver.ChangeCertificate, g.Store.CertificateByID)
	g.issuers = cache.New[string, Evidence](&g.caches, MaxCachedIssuers, keyserver.ChangeRevocation)
	g.anchors = cache.New[keyserver.ID, time.Time](&g.caches, maxCachedPrincipals, keyserver.ChangeTrustedCA, keyserver.ChangeAuthority)
	g.enrolled = cache.New[keyserver.ID, []keyserver.Certificate](&g.caches, maxCachedDelegators, keyserver.ChangeCertificate)
	g.peers = cache.NewByID(&g.caches, keyserver.MaxTrustedServers, keyserver.ChangeTrustedServer, g.readPeer)
	g.trusts = cache.New[trustKey, []keyserver.PrincipalTrust](&g.caches, maxCachedPrincipals, keyserver.ChangePrincipalTrust)
	g.policies = cache.New[keyserver.Deployment, approval.Policy](&g.caches, 4, keyserver.ChangeApprovalPolicy)
}

// WithEmptyCaches returns a copy of the gate with empty caches. Its decisions include every change that was committed
// before the call. Use the copy for only one request, because later changes do not clear its caches.
func (g *Gate) WithEmptyCaches() *Gate {
	without := *g
	without.resetCaches()
	return &without
}

// Changed removes the cache entries that committed changes made stale.
func (g *Gate) Changed(changes []keyserver.Change) { g.caches.Changed(changes) }

// CachedPrincipal reads a principal through the cache.
func (g *Gate) CachedPrincipal(ctx context.Context, id keyserver.ID) (keyserver.Principal, error) {
	if g.view != nil {
		return g.view.principal(ctx, id)
	}
	return g.principals.Get(ctx, id)
}
