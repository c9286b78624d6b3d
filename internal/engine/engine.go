package engine

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/ca"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/cache"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/usagequota"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// maxCachedKeys bounds the cache of keys. A key costs about a kilobyte and a half.
const maxCachedKeys = 16384

// Config is what an engine needs. Only Deployment, Peers, BreakGlass, LimitRefusals, Settings, PasswordCost and Hashes are
// optional.
type Config struct {
	Parts
	Store   *sqlstore.Store
	Keyring *keyring.Keyring
	Auditor gate.Auditor
	System  keyserver.SystemID
	// Deployment is how duties are divided; empty is unified.
	Deployment keyserver.Deployment
	Clock      func() time.Time
	Random     io.Reader
	Logger     *slog.Logger
	// Peers is nil where no other key server can be reached.
	Peers gate.Peers
	// BreakGlass lets through without an approval what takes one.
	BreakGlass bool
	// LimitRefusals limits the refusals of each principal.
	LimitRefusals bool
}

// Parts are the parts of the key server that only operations of package engine use.
type Parts struct {
	DataKeys  DataKeys
	AuditTree AuditTree
	// Witnessing is what is done for the logs of others.
	Witnessing Witnessing
	// Backups copies what there is.
	Backups Backups
	// CAManager manages the CAs of this key server.
	CAManager *ca.Manager
	Self      Self
	Build     keyserver.Version
	// Settings is the configuration that the service reads, secrets included;
	// it may be empty.
	Settings keyserver.ConfigNode
	// PasswordCost is that of new password hashes.
	PasswordCost password.Cost
	// Hashes bounds the hashes at once of all that work in the process; nil bounds nothing.
	Hashes *password.Gate
}

// Engine is one key server. It is safe for concurrent use.
type Engine struct {
	Parts
	*gate.Gate
	Keyring  *keyring.Keyring
	caches   cache.Set
	keys     *cache.ByID[*heldKey]
	lines    *cache.ByID[[]keyserver.ID] // the keys of a line, oldest first, by the first
	feed     *feed
	unerased *atomic.Bool // bytes of keys may have gone that are still in the files
	// behind is the engine that an engine with a question asks for keys.
	behind   *Engine
	question keyserver.Question

	encryptions *usagequota.Allowances
	// rotate mints the successor of a key that may encrypt hardly any more, or no
	// more, unless it has one already. A nil answer says that it has one.
	rotate func(ctx context.Context, key keyserver.ID) error
}

var _ keyserver.Port = (*Engine)(nil)

// New returns an engine on a store that Bootstrap has prepared.
func New(c Config) *Engine {
	e := &Engine{Parts: c.Parts, Keyring: c.Keyring, feed: newFeed(), unerased: new(atomic.Bool)}
	e.Gate = gate.New(gate.Config{
		Base: gate.Base{
			Store: c.Store, System: c.System, Deployment: c.Deployment, Clock: c.Clock, Random: c.Random, Logger: c.Logger, Peers: c.Peers,
		},
		Auditor: c.Auditor, BreakGlass: c.BreakGlass, LimitRefusals: c.LimitRefusals,
	})
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
	e.keys = cache.NewByID[*heldKey](&e.caches, maxCachedKeys, keyserver.ChangeKey)
	e.lines = cache.NewByID[[]keyserver.ID](&e.caches, maxCachedKeys, keyserver.ChangeKey)
}

// anew is the engine with caches of its own that hold nothing: what it answers knows every
// change that is committed by now. It is for one question, because none of them reaches it later.
func (e *Engine) anew() *Engine {
	without := *e
	without.Gate = e.Anew()
	without.remember()
	return &without
}

// changed forgets what a committed change made stale and wakes the readers of
// the change feed.
func (e *Engine) changed(changes []keyserver.Change) {
	e.Gate.Changed(changes)
	e.caches.Changed(changes)
	e.feed.wake()
}
