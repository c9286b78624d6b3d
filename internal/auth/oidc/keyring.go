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

// Pace sets when the keys of a source are read, and how long they are used.
type Pace struct {
	Fresh time.Duration // age at which the keys are read again
	Retry time.Duration // minimum time between two reads, even if a token has an unknown key
	Keep  time.Duration // maximum time that keys are used after their last successful read
}

const readTimeout = 5 * time.Second

// keyring holds the keys with which an issuer signs tokens. Each read of the issuer's keys replaces all of them, so a
// key that the issuer removed is removed here, too. A token with an unknown key causes a read. Pace limits the reads;
// otherwise a client with invented tokens could flood the issuer.
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
	claimed bool // a request whose key is in memory is about to start a read
}

// find returns the issuer's key with the key id and algorithm of a token.
func (k *keyring) find(ctx context.Context, c Claimed) (any, error) {
	key, settled, err := k.keyInMemory(c, true)
	if settled {
		return key, err
	}
	if key != nil {
		defer k.release()
	}
	if _, err := k.reads.Do(ctx, "", func() (struct{}, error) { k.refresh(ctx); return struct{}{}, nil }); err != nil {
		return nil, err
	}
	key, _, err = k.keyInMemory(c, false)
	return key, err
}

// keyInMemory returns the key in memory. settled means that this result is final; if not, the keys must be read first. If the
// key is in memory, only one request starts the read. That request sets claimed; it may do so only if claim is true.
func (k *keyring) keyInMemory(c Claimed, claim bool) (key any, settled bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, pace := k.clock(), k.source.Pace()
	age := now.Sub(k.readAt)
	key = k.keys.find(c)
	switch {
	case key != nil && !k.readAt.IsZero() && age < pace.Keep: // a request whose key is in memory does not wait for the read of another request
		settled = k.reading || k.claimed || age < pace.Fresh || k.tooSoon(now)
		k.claimed = k.claimed || claim && !settled
		return key, settled, nil
	case k.failed != nil:
		// The issuer may have added the key since the last successful read.
		err = fmt.Errorf("cannot read the keys of the issuer: %w", k.failed)
	default:
		err = Refused("the issuer has no key for its kid and alg")
	}
	return nil, !k.reading && k.tooSoon(now), err
}

func (k *keyring) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.claimed = false
}

// tooSoon reports whether Pace.Retry has not passed since the last read began. The caller holds mu.
func (k *keyring) tooSoon(now time.Time) bool {
	return !k.triedAt.IsZero() && now.Sub(k.triedAt) < k.source.Pace().Retry
}

// refresh reads the keys for all waiting requests. If the request that started it ends, the read continues.
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
