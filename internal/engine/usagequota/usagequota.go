// Package usagequota limits the number of uses of a key over any number of processes, without a database write for each
// use. A process reserves blocks of uses in the database and counts within them. When the process ends, the rest of a
// block is lost, so fewer uses than the limit may be possible, never more.
package usagequota

import (
	"context"
	"errors"
	"sync"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Blocks start small, so that a rarely used key loses few uses at each start of a process. They
// double when they are used up.
const (
	firstBlock = 256
	maxBlock   = 65536
)

// ErrNone means that no use is left.
var ErrNone = errors.New("nothing is left of the allowance")

// Reserve takes up to n uses, which may be 0, from the quota of all processes. It returns how many it
// got and how many are left after that. Getting none is not an error.
type Reserve func(ctx context.Context, key keyserver.ID, n int64) (got, left int64, err error)

// Quotas has the quotas of many keys. It is safe for concurrent use.
type Quotas struct {
	reserve Reserve
	max     int // number of keys that are kept

	mu   sync.Mutex
	keys map[keyserver.ID]*block
}

// block is this process's part of a key's quota.
type block struct {
	turn chan struct{} // a mutex that respects a context
	held int64
	next int64 // size of the next block
	left int64 // in the database, at the last reservation
}

// New returns the quotas of up to maxKeys keys. If there are more, an arbitrary key is dropped, with the rest of its
// block.
func New(maxKeys int, reserve Reserve) *Quotas {
	return &Quotas{reserve: reserve, max: maxKeys, keys: map[keyserver.ID]*block{}}
}

// Taken is the result of one use.
type Taken struct {
	// Left is the number of uses that were left in the database when this process last reserved a
	// block.
	Left int64
	// Fresh reports the first use of a block.
	Fresh bool
}

// Peek returns what Take would return, but takes no use.
func (a *Quotas) Peek(ctx context.Context, key keyserver.ID) (taken Taken, err error) {
	if a.holds(key) {
		return taken, nil
	}
	_, taken.Left, err = a.reserve(ctx, key, 0)
	if err == nil && taken.Left == 0 {
		err = ErrNone
	}
	return taken, err
}

// holds reports whether this process has a use left. While another goroutine takes one, it reports
// true.
func (a *Quotas) holds(key keyserver.ID) bool {
	a.mu.Lock()
	b := a.keys[key]
	a.mu.Unlock()
	if b == nil {
		return false
	}
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
		return b.held > 0
	default:
		return true
	}
}

// Take uses one of a key's uses. It returns ErrNone if none is left.
func (a *Quotas) Take(ctx context.Context, key keyserver.ID) (taken Taken, err error) {
	b := a.block(key)
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return taken, ctx.Err()
	}
	if b.held == 0 {
		got, left, err := a.reserve(ctx, key, b.next)
		switch {
		case err != nil:
			return taken, err
		case got == 0:
			return taken, ErrNone
		}
		b.held, b.left, b.next = got, left, min(2*b.next, maxBlock)
		taken.Fresh = true
	}
	b.held--
	taken.Left = b.left
	return taken, nil
}

func (a *Quotas) block(key keyserver.ID) *block {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.keys[key]
	if b == nil {
		if len(a.keys) >= a.max {
			for other := range a.keys {
				delete(a.keys, other)
				break
			}
		}
		b = &block{turn: make(chan struct{}, 1), next: firstBlock}
		a.keys[key] = b
	}
	return b
}
