package engine

import (
	"io"
	"log/slog"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/ca"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/keys"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/trust"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Config has the dependencies of an engine. Only Deployment, Peers, BreakGlass, LimitRefusals, Settings, PasswordCost
// and Hashes are optional.
type Config struct {
	Parts
	Store   *sqlstore.Store
	Keyring *keyring.Keyring
	Auditor gate.Auditor
	System  keyserver.SystemID
	// Deployment determines which duties are separated. Empty means unified.
	Deployment keyserver.Deployment
	Clock      func() time.Time
	Random     io.Reader
	Logger     *slog.Logger
	Self       trust.Self
	// Peers is nil if no other key server can be reached.
	Peers gate.Peers
	// BreakGlass allows operations without the approval that they normally need.
	BreakGlass bool
	// LimitRefusals limits the number of refused operations of each principal.
	LimitRefusals bool
}

// Parts are the parts of the key server that the gate does not need.
type Parts struct {
	DataKeys  DataKeys
	AuditTree AuditTree
	// Witnessing cosigns the logs of other key servers.
	Witnessing Witnessing
	// Backups makes copies of the entire state.
	Backups Backups
	// CAManager manages the CAs of this key server.
	CAManager *ca.Manager
	Build     keyserver.Version
	// Settings is the configuration of the key server, including secrets. It may be empty.
	Settings keyserver.ConfigNode
	// PasswordCost is the cost of new password hashes.
	PasswordCost password.Cost
	// Hashes bounds concurrent password hashing in the entire process; nil means no bound.
	Hashes *password.Gate
}

// Engine is one key server. It is safe for concurrent use.
type Engine struct {
	Parts
	*gate.Gate
	*keys.Keys
	*trust.Trust
	feed *feed
}

var _ keyserver.Port = (*Engine)(nil)

// New returns an engine on a store that package bootstrap has prepared.
func New(c Config) *Engine {
	g := gate.New(gate.Config{
		Base: gate.Base{
			Store: c.Store, System: c.System, Deployment: c.Deployment, Clock: c.Clock, Random: c.Random, Logger: c.Logger, Peers: c.Peers,
		},
		Auditor: c.Auditor, BreakGlass: c.BreakGlass, LimitRefusals: c.LimitRefusals,
	})
	e := &Engine{
		Parts: c.Parts, Gate: g, Keys: keys.New(g, c.Keyring), Trust: trust.New(g, c.CAManager, c.Self), feed: newFeed(),
	}
	c.Store.OnChange(e.changed)
	return e
}

// with returns a copy of the engine in which all operations use the gate of ks.
func (e *Engine) with(ks *keys.Keys) *Engine {
	return &Engine{Parts: e.Parts, Gate: ks.Gate, Keys: ks, Trust: trust.New(ks.Gate, e.CAManager, e.Self), feed: e.feed}
}

// withEmptyCaches returns a copy of the engine with empty caches. Its results include every change that was committed
// before the call. Use the copy for only one question, because later changes do not clear its caches.
func (e *Engine) withEmptyCaches() *Engine { return e.with(e.Keys.WithEmptyCaches()) }

// changed drops the cache entries that committed changes made stale, and wakes the readers of the change feed.
func (e *Engine) changed(changes []keyserver.Change) {
	e.Keys.Changed(changes)
	e.feed.wake()
}
