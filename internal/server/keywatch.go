package server

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
)

const (
	// keyEvery is how often the key-encryption key is used, which may cost money.
	keyEvery = time.Minute
	// aliveTimeout is how long whoever has the key-encryption key may be silent. A shorter
	// one takes a plugin on a busy machine for gone.
	aliveTimeout = 2 * time.Second
)

// keyWatch looks after the key-encryption key. It does so apart from the looks at the other
// parts, because one that hangs must not hold up what is said of them.
type keyWatch struct {
	ring *keyring.Keyring
	cfg  Config

	used    time.Time
	seen    atomic.Pointer[keySeen]
	changed chan struct{} // has one when the key has begun to fail, or works again
}

// keySeen is what was last seen of a key.
type keySeen struct {
	warning string
	err     error
}

// watchKey begins with a key that has just opened the data keys.
func watchKey(ring *keyring.Keyring, cfg Config) *keyWatch {
	k := &keyWatch{ring: ring, cfg: cfg, used: cfg.Clock(), changed: make(chan struct{}, 1)}
	k.seen.Store(&keySeen{})
	return k
}

func (k *keyWatch) run(ctx context.Context) {
	next := time.NewTicker(lookEvery)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		k.look(ctx)
	}
}

// look asks whether anybody is there where that costs nothing, and uses the key now and
// then, when it has just failed, and until it works again.
func (k *keyWatch) look(ctx context.Context) {
	was, doubted := k.seen.Load(), k.ring.Doubted()
	is := keySeen{warning: was.warning}
	is.err = k.alive(ctx)
	if now := k.cfg.Clock(); is.err == nil && (doubted || was.err != nil || now.Sub(k.used) >= keyEvery) {
		k.used = now
		is = k.use(ctx)
	}
	if ctx.Err() != nil {
		return // the end of the service says nothing of the key
	}
	k.seen.Store(&is)
	if (was.err == nil) != (is.err == nil) {
		select {
		case k.changed <- struct{}{}:
		default: // it was not looked at since
		}
	}
	if was.warning == "" && is.warning != "" {
		k.cfg.Logger.Warn(is.warning)
	}
}

func (k *keyWatch) alive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	return k.ring.Alive(ctx)
}

func (k *keyWatch) use(ctx context.Context) (seen keySeen) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	seen.warning, seen.err = k.ring.Answers(ctx)
	return seen
}

// trouble is what is wrong with the key, as far as was seen.
func (k *keyWatch) trouble() error {
	if err := k.ring.Behind(); err != nil {
		return err
	}
	return k.seen.Load().err
}

func (k *keyWatch) warning() string { return k.seen.Load().warning }
