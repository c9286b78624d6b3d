package oidc

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/singleflight"
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

	reads singleflight.Group[struct{}]

	mu      sync.Mutex
	keys    keySet
	readAt  time.Time // of keys
	triedAt time.Time
	failed  error // of the last try, nil if it succeeded
	reading bool
	claimed bool // somebody with a good key is about to have a read made
}

// find returns the key that a token says it is signed by.
func (k *keyring) find(ctx context.Context, c Claimed) (any, error) {
	key, settled, err := k.look(c, true)
	if settled {
		return key, err
	}
	if key != nil {
		defer k.release()
	}
	if _, err := k.reads.Do(ctx, "", func() (struct{}, error) { k.refresh(ctx); return struct{}{}, nil }); err != nil {
		return nil, err
	}
	key, _, err = k.look(c, false)
	return key, err
}

// look answers with what there is, and whether that settles it. Otherwise the
// keys are to be read first; of those who hold a good key one is enough to have
// that done, who claims it.
func (k *keyring) look(c Claimed, claim bool) (key any, settled bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, pace := k.clock(), k.source.Pace()
	age := now.Sub(k.readAt)
	key = k.keys.find(c)
	switch {
	case key != nil && !k.readAt.IsZero() && age < pace.Keep: // whoever holds a good key waits for nobody
		settled = k.reading || k.claimed || age < pace.Fresh || k.tooSoon(now)
		k.claimed = k.claimed || claim && !settled
		return key, settled, nil
	case k.failed != nil:
		// The token may well be signed by a key that could not be read.
		err = fmt.Errorf("the issuer's keys cannot be read: %w", k.failed)
	default:
		err = Refused("the issuer has no such key")
	}
	return nil, !k.reading && k.tooSoon(now), err
}

// release gives a claim back.
func (k *keyring) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.claimed = false
}

// tooSoon says that the source allows no read yet. The caller holds mu.
func (k *keyring) tooSoon(now time.Time) bool {
	return !k.triedAt.IsZero() && now.Sub(k.triedAt) < k.source.Pace().Retry
}

// refresh reads the keys for everybody who waits, so that it outlives the
// request that happened to cause it.
func (k *keyring) refresh(ctx context.Context) {
	if !k.begin() {
		return
	}
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
	k.reading = false
}

// begin takes the turn to read, unless a read ended just now.
func (k *keyring) begin() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock()
	if k.tooSoon(now) {
		return false
	}
	k.reading, k.triedAt = true, now
	return true
}
