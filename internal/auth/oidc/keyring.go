package oidc

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/singleflight"
)

// Source reads the keys of an issuer, as a JWK set (RFC 7517).
type Source interface {
	Read(ctx context.Context) ([]byte, error)
	Pace() Pace
}

// Pace sets how long the keys of a source are used.
type Pace struct {
	Fresh time.Duration // time until the keys are read again
	Retry time.Duration // minimum time between reads, also for unknown keys
	Keep  time.Duration // maximum use of keys that cannot be read again
}

// readTimeout bounds one read of a source.
const readTimeout = 5 * time.Second

// keyring holds an issuer's keys. Each read replaces all of them, so that a key that the
// issuer removed is removed here. A token with an unknown key causes a read, limited by
// the source's Pace. Otherwise invented tokens would cause requests to the issuer.
type keyring struct {
	source Source
	clock  func() time.Time

	reads singleflight.Group[struct{}]

	mu      sync.Mutex
	keys    keySet
	readAt  time.Time // of keys
	triedAt time.Time
	failed  error // of the last read, nil if it succeeded
	reading bool
	claimed bool // a request with a good key is about to start a read
}

// find returns the key that a token claims to be signed with.
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

// look returns the key in memory, and whether that result is final. If not, the keys have
// to be read first. Of the requests that already have a good key, only one starts the
// read; it claims the read if claim is true.
func (k *keyring) look(c Claimed, claim bool) (key any, settled bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, pace := k.clock(), k.source.Pace()
	age := now.Sub(k.readAt)
	key = k.keys.find(c)
	switch {
	case key != nil && !k.readAt.IsZero() && age < pace.Keep: // a request with a good key does not wait for a read
		settled = k.reading || k.claimed || age < pace.Fresh || k.tooSoon(now)
		k.claimed = k.claimed || claim && !settled
		return key, settled, nil
	case k.failed != nil:
		// The token may be signed by a key that could not be read.
		err = fmt.Errorf("cannot read the keys of the issuer: %w", k.failed)
	default:
		err = Refused("the issuer has no key for its kid and alg")
	}
	return nil, !k.reading && k.tooSoon(now), err
}

// release ends a claim.
func (k *keyring) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.claimed = false
}

// tooSoon reports whether the source allows no read yet. The caller holds mu.
func (k *keyring) tooSoon(now time.Time) bool {
	return !k.triedAt.IsZero() && now.Sub(k.triedAt) < k.source.Pace().Retry
}

// refresh reads the keys for all waiting requests, so it continues after the request that
// caused it ends.
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

// begin marks the start of a read. It returns false if the last read began too recently.
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
