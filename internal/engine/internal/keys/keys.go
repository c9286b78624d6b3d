package keys

import (
	"context"
	"sync/atomic"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/usagequota"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/cache"
)

// maxCached is the maximum number of cached keys, and of cached lineages. A key needs about 1.5 kB.
const maxCached = 16384

// Keys has the operations with keys and their ACLs. It is safe for concurrent use.
type Keys struct {
	*gate.Gate
	keyring  *keyring.Keyring
	caches   cache.Set
	keys     *cache.ByID[*cachedKey]
	lineages *cache.ByID[[]keyserver.ID] // ids of the keys of a lineage, oldest first, by the id of the first key
	unerased *atomic.Bool                // the database files may still have bytes of destroyed keys

	encryptions *usagequota.Quotas
	// rotate mints the successor of a key. If the key already has a successor, rotate does nothing and returns nil.
	rotate func(ctx context.Context, key keyserver.ID) error

	// base has the same keys without the suppositions of question. It is nil unless the gate only explains.
	base     *Keys
	question keyserver.Question
}

// New returns the operations with keys. The gate g decides on each. Call Changed for each change that the store
// announces.
func New(g *gate.Gate, ring *keyring.Keyring) *Keys {
	ks := &Keys{Gate: g, keyring: ring, unerased: new(atomic.Bool)}
	ks.encryptions = usagequota.New(maxCached, ks.reserveEncryptions)
	ks.rotate = ks.rotateExhausted
	ks.resetCaches()
	ks.unerased.Store(true) // an earlier process may have stopped before erase
	return ks
}

// resetCaches replaces the caches by empty ones.
func (ks *Keys) resetCaches() {
	ks.caches = nil
	ks.keys = cache.NewByID(&ks.caches, maxCached, keyserver.ChangeKey, ks.loadKey)
	ks.lineages = cache.NewByID(&ks.caches, maxCached, keyserver.ChangeKey, ks.readLineage)
}

// Changed removes the entries that committed changes made stale, from these caches and those of the gate.
func (ks *Keys) Changed(changes []keyserver.Change) {
	ks.Gate.Changed(changes)
	ks.caches.Changed(changes)
}

// WithEmptyCaches returns a copy with empty caches, also in its gate (see Gate.WithEmptyCaches).
func (ks *Keys) WithEmptyCaches() *Keys {
	without := *ks
	without.Gate = ks.Gate.WithEmptyCaches()
	without.resetCaches()
	return &without
}

// WithView returns a copy whose gate only explains (see Gate.WithView).
func (ks *Keys) WithView(q keyserver.Question) (*Keys, *gate.View) {
	asking := *ks
	var v *gate.View
	asking.Gate, v = ks.Gate.WithView(q)
	asking.base, asking.question = ks, q
	return &asking, v
}
