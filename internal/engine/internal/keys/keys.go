package keys

import (
	"context"
	"sync/atomic"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/cache"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/usagequota"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// maxCached bounds the caches of keys and of lines. A key costs about a kilobyte and a half.
const maxCached = 16384

// Keys has the operations with keys and their ACLs. It is safe for concurrent use.
type Keys struct {
	*gate.Gate
	keyring  *keyring.Keyring
	caches   cache.Set
	keys     *cache.ByID[*heldKey]
	lines    *cache.ByID[[]keyserver.ID] // the keys of a line, oldest first, by the first
	unerased *atomic.Bool                // bytes of keys may have gone that are still in the files

	encryptions *usagequota.Allowances
	// rotate mints the successor of a key that may encrypt hardly any more, or no
	// more, unless it has one already. A nil answer says that it has one.
	rotate func(ctx context.Context, key keyserver.ID) error

	// behind has the keys to which supposed applies the question. It is nil unless the gate is only asked.
	behind   *Keys
	question keyserver.Question
}

// New returns the operations with keys behind a gate. Call Changed for each change that the store announces.
func New(g *gate.Gate, ring *keyring.Keyring) *Keys {
	ks := &Keys{Gate: g, keyring: ring, unerased: new(atomic.Bool)}
	ks.encryptions = usagequota.New(maxCached, ks.reserveEncryptions)
	ks.rotate = ks.rotateExhausted
	ks.remember()
	ks.unerased.Store(true) // a process before this one may not have come to it
	return ks
}

// remember begins with caches that hold nothing.
func (ks *Keys) remember() {
	ks.caches = nil
	ks.keys = cache.NewByID[*heldKey](&ks.caches, maxCached, keyserver.ChangeKey)
	ks.lines = cache.NewByID[[]keyserver.ID](&ks.caches, maxCached, keyserver.ChangeKey)
}

// Changed forgets what committed changes made stale, also in the gate.
func (ks *Keys) Changed(changes []keyserver.Change) {
	ks.Gate.Changed(changes)
	ks.caches.Changed(changes)
}

// Anew returns the operations and their gate with empty caches, like Gate.Anew.
func (ks *Keys) Anew() *Keys {
	without := *ks
	without.Gate = ks.Gate.Anew()
	without.remember()
	return &without
}

// Asking returns the operations behind a gate that is only asked, like Gate.Asking.
func (ks *Keys) Asking(q keyserver.Question) (*Keys, *gate.View) {
	asking := *ks
	var v *gate.View
	asking.Gate, v = ks.Gate.Asking(q)
	asking.behind, asking.question = ks, q
	return &asking, v
}
