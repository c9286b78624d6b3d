package server

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
)

const (
	// keyEvery is how often the key-encryption key is used for a check. A KMS provider may charge for each use.
	keyEvery = time.Minute
	// aliveTimeout is how long the KMS provider may take to respond. A shorter time would report failures of a plugin on a
	// busy machine.
	aliveTimeout = 2 * time.Second
)

// keyWatch checks the key-encryption key. It runs separately from the checks of health, so that a KMS provider that
// hangs does not delay the results of these checks.
type keyWatch struct {
	ring *keyring.Keyring
	cfg  Config

	used    time.Time
	seen    atomic.Pointer[keySeen]
	changed chan struct{} // contains a value after the key has begun to fail or works again
}

type keySeen struct {
	warning string
	err     error
}

// watchKey returns a keyWatch. Call it just after the key-encryption key has opened the data keys.
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

// look checks whether the KMS provider responds, if this check is free of charge. Every keyEvery, it also uses the key.
// After a failure, it uses the key at each call until the key works again.
func (k *keyWatch) look(ctx context.Context) {
	was, doubted := k.seen.Load(), k.ring.Doubted()
	is := keySeen{warning: was.warning}
	is.err = k.alive(ctx)
	if now := k.cfg.Clock(); is.err == nil && (doubted || was.err != nil || now.Sub(k.used) >= keyEvery) {
		k.used = now
		is = k.use(ctx)
	}
	if ctx.Err() != nil {
		return // the process is shutting down, so an error does not mean that the key fails
	}
	k.seen.Store(&is)
	if (was.err == nil) != (is.err == nil) {
		select {
		case k.changed <- struct{}{}:
		default: // the previous value was not received yet
		}
	}
	if was.warning == "" && is.warning != "" {
		k.cfg.Logger.Warn(is.warning)
	}
}

func (k *keyWatch) alive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	return k.ring.Ping(ctx)
}

func (k *keyWatch) use(ctx context.Context) (seen keySeen) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	seen.warning, seen.err = k.ring.CheckKEK(ctx)
	return seen
}

func (k *keyWatch) trouble() error {
	if err := k.ring.NewestKeyError(); err != nil {
		return err
	}
	return k.seen.Load().err
}

func (k *keyWatch) warning() string { return k.seen.Load().warning }
