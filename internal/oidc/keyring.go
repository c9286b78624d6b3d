package oidc

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Source is where an issuer's keys are read, as a JWK set (RFC 7517).
type Source interface {
	Read(ctx context.Context) ([]byte, error)
	Pace() Pace
}

// Pace says how long what was read from a source is used.
type Pace struct {
	Fresh time.Duration // the keys are read anew after this long
	Retry time.Duration // but never more often, whatever tokens ask for
	Keep  time.Duration // keys that cannot be read anew are used for this long at most
}

// readTimeout bounds one read of a source.
const readTimeout = 5 * time.Second

// keyring keeps an issuer's keys. A read replaces all of them, so that a key
// that the issuer dropped is dropped here. A token whose key is unknown causes
// a read, at the source's pace: otherwise tokens that anybody can make up would
// be requests to the issuer.
type keyring struct {
	source Source
	clock  func() time.Time

	mu      sync.Mutex
	keys    keySet
	readAt  time.Time // of keys
	triedAt time.Time
	failed  error // of the last try, nil if it succeeded
	flight  chan struct{}
}

// find returns the key that a token says it is signed by.
func (k *keyring) find(ctx context.Context, c Claimed) (any, error) {
	for last := false; ; last = true {
		k.mu.Lock()
		now := k.clock()
		age := now.Sub(k.readAt)
		usable := !k.readAt.IsZero() && age < k.source.Pace().Keep
		key := k.keys.find(c)
		good := usable && key != nil
		flight := k.flight
		switch {
		case good && (flight != nil || age < k.source.Pace().Fresh): // whoever holds a good key waits for nobody
			k.mu.Unlock()
			return key, nil
		case last || flight == nil && !k.triedAt.IsZero() && now.Sub(k.triedAt) < k.source.Pace().Retry:
			defer k.mu.Unlock()
			return k.settle(key, usable)
		case flight == nil:
			flight = make(chan struct{})
			k.flight, k.triedAt = flight, now
			k.mu.Unlock()
			k.refresh(ctx, flight)
			continue
		}
		k.mu.Unlock()
		select {
		case <-flight:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// settle answers with what there is. The caller holds mu.
func (k *keyring) settle(key any, usable bool) (any, error) {
	switch {
	case usable && key != nil:
		return key, nil
	case k.failed != nil:
		// The token may well be signed by a key that could not be read.
		return nil, fmt.Errorf("the issuer's keys cannot be read: %w", k.failed)
	default:
		return nil, Refused("the issuer has no such key")
	}
}

// refresh reads the keys for everybody who waits, so that it outlives the
// request that happened to cause it.
func (k *keyring) refresh(ctx context.Context, flight chan struct{}) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	text, err := k.source.Read(ctx)
	var keys keySet
	if err == nil {
		keys, err = parseKeys(text)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed = err; err == nil {
		k.keys, k.readAt = keys, k.triedAt
	}
	k.flight = nil
	close(flight)
}
