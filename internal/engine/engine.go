package engine

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/approval"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/ca"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/cache"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/usagequota"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Bounds of the caches, in entries. A key costs about a kilobyte and a half.
const (
	maxCachedKeys       = 16384
	maxCachedPrincipals = 16384
	maxCachedRoles      = 4096
	maxCachedDelegators = 1024
	maxCachedIssuers    = 64 // each may hold the serial numbers of a whole CRL
)

// Auditor makes rows of the audit trail durable.
type Auditor interface {
	// Write answers nil once the row is durable.
	Write(ctx context.Context, entry keyserver.AuditEntry) error
	// Begin answers once the row is on its way, with a function that waits until
	// it is durable, and that has to be called.
	Begin(ctx context.Context, entry keyserver.AuditEntry) (durable func() error, err error)
	// WriteAll is Write for rows that one commit has to have, or none of them.
	WriteAll(ctx context.Context, entries []keyserver.AuditEntry) error
}

// Config is what an engine needs. Every field but Settings, Peers, PasswordCost, Hashes and Refusals
// is required.
type Config struct {
	Store     *sqlstore.Store
	Keyring   *keyring.Keyring
	DataKeys  DataKeys
	Auditor   Auditor
	AuditTree AuditTree
	// Witnessing is what is done for the logs of others.
	Witnessing Witnessing
	System     keyserver.SystemID
	// Backups copies what there is.
	Backups Backups
	// Deployment is how duties are divided; empty is unified.
	Deployment keyserver.Deployment
	// CAManager manages the CAs of this key server.
	CAManager *ca.Manager
	Self      Self
	Build     keyserver.Version
	Clock     func() time.Time
	Random    io.Reader
	Logger    *slog.Logger
	// Settings is the configuration that the service reads, secrets included;
	// it may be empty.
	Settings keyserver.ConfigNode
	// Peers is nil where no other key server can be reached.
	Peers Peers
	// BreakGlass lets through without an approval what takes one.
	BreakGlass bool
	// PasswordCost is that of new password hashes.
	PasswordCost password.Cost
	// Refusals limits the refusals of each principal; nil limits nothing.
	Refusals *Refusals
	// Hashes bounds the hashes at once of all that work in the process; nil bounds nothing.
	Hashes *password.Gate
}

// Engine is one key server. It is safe for concurrent use.
type Engine struct {
	Config
	caches     cache.Set
	principals *cache.ByID[keyserver.Principal]
	roles      *cache.ByID[keyserver.Role]
	keys       *cache.ByID[*heldKey]
	lines      *cache.ByID[[]keyserver.ID] // the keys of a line, oldest first, by the first
	standings  *cache.ByID[keyserver.Certificate]
	issuers    *cache.Cache[string, evidence]
	anchors    *cache.Cache[keyserver.ID, time.Time]               // until when a trusted CA vouches for a certificate
	enrolled   *cache.Cache[keyserver.ID, []keyserver.Certificate] // of delegators
	peers      *cache.ByID[keyserver.TrustedServer]                // by system id, as the change feed names them
	trusts     *cache.Cache[trustKey, []keyserver.PrincipalTrust]
	policies   *cache.Cache[keyserver.Deployment, approval.Policy] // the one that there is
	feed       *feed
	unerased   *atomic.Bool // bytes of keys may have gone that are still in the files
	// view is set where the gate is asked for an explanation: see explain.go.
	view *view

	encryptions *usagequota.Allowances
	// rotate mints the successor of a key that may encrypt hardly any more, or no
	// more, unless it has one already. A nil answer says that it has one.
	rotate func(ctx context.Context, key keyserver.ID) error
}

var _ keyserver.Port = (*Engine)(nil)

// New returns an engine on a store that Bootstrap has prepared.
func New(c Config) *Engine {
	e := &Engine{Config: c, feed: newFeed(), unerased: new(atomic.Bool)}
	e.encryptions = usagequota.New(maxCachedKeys, e.reserveEncryptions)
	e.rotate = e.rotateExhausted
	e.remember()
	e.unerased.Store(true) // a process before this one may not have come to it
	c.Store.OnChange(e.changed)
	return e
}

// remember begins with caches that hold nothing.
func (e *Engine) remember() {
	e.caches = nil
	e.principals = cache.NewByID[keyserver.Principal](&e.caches, maxCachedPrincipals, keyserver.ChangePrincipal)
	e.roles = cache.NewByID[keyserver.Role](&e.caches, maxCachedRoles, keyserver.ChangeRole)
	e.keys = cache.NewByID[*heldKey](&e.caches, maxCachedKeys, keyserver.ChangeKey)
	e.lines = cache.NewByID[[]keyserver.ID](&e.caches, maxCachedKeys, keyserver.ChangeKey)
	e.standings = cache.NewByID[keyserver.Certificate](&e.caches, maxCachedPrincipals, keyserver.ChangeCertificate)
	e.issuers = cache.New[string, evidence](&e.caches, maxCachedIssuers, keyserver.ChangeRevocation)
	e.anchors = cache.New[keyserver.ID, time.Time](&e.caches, maxCachedPrincipals, keyserver.ChangeTrustedCA, keyserver.ChangeAuthority)
	e.enrolled = cache.New[keyserver.ID, []keyserver.Certificate](&e.caches, maxCachedDelegators, keyserver.ChangeCertificate)
	e.peers = cache.NewByID[keyserver.TrustedServer](&e.caches, keyserver.MaxTrustedServers, keyserver.ChangeTrustedServer)
	e.trusts = cache.New[trustKey, []keyserver.PrincipalTrust](&e.caches, maxCachedPrincipals, keyserver.ChangePrincipalTrust)
	e.policies = cache.New[keyserver.Deployment, approval.Policy](&e.caches, 4, keyserver.ChangeApprovalPolicy)
}

// anew is the engine with caches of its own that hold nothing: what it answers knows every
// change that is committed by now. It is for one question, because none of them reaches it later.
func (e *Engine) anew() *Engine {
	without := *e
	without.remember()
	return &without
}

// changed forgets what a committed change made stale and wakes the readers of
// the change feed.
func (e *Engine) changed(changes []keyserver.Change) {
	e.caches.Changed(changes)
	e.feed.wake()
}

// principal reads a principal through the cache.
func (e *Engine) principal(ctx context.Context, id keyserver.ID) (keyserver.Principal, error) {
	if e.view != nil {
		return e.view.principal(ctx, id)
	}
	return e.principals.Get(ctx, id, func() (keyserver.Principal, error) { return e.Store.Principal(ctx, id) })
}

// role reads a role through the cache.
func (e *Engine) role(ctx context.Context, id keyserver.ID) (keyserver.Role, error) {
	return e.roles.Get(ctx, id, func() (keyserver.Role, error) { return e.Store.Role(ctx, id) })
}

// notFound turns the store's "no such row" into a fault; every other error
// passes through.
func notFound(err error, code fault.Code, format string, args ...any) error {
	if errors.Is(err, sqlstore.ErrNotFound) {
		return fault.New(code, format, args...).Audited(fault.ReasonObjectNotFound)
	}
	return err
}
