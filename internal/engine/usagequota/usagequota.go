// Package usagequota counts what may be done under a key so many times and no more,
// by however many processes, without a write for each time: a process takes blocks
// out of the database, and counts within them. What it has left of one when it
// ends is lost, which errs on the strict side.
package usagequota

import (
	"context"
	"errors"
	"sync"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Blocks begin small, so that a key that is hardly used does not lose much by each
// start of a process, and double while they are used up.
const (
	firstBlock = 256
	maxBlock   = 65536
)

// ErrNone is that no time is left.
var ErrNone = errors.New("nothing is left of the allowance")

// Reserve takes up to n, which may be none, out of what all processes may use. It answers how many it
// got, and how many are left after that; none is no error.
type Reserve func(ctx context.Context, key keyserver.ID, n int64) (got, left int64, err error)

// Allowances are those of many keys. They are safe for concurrent use.
type Allowances struct {
	reserve Reserve
	max     int // keys that are remembered

	mu   sync.Mutex
	keys map[keyserver.ID]*block
}

// block is what this process has of a key's allowance.
type block struct {
	turn chan struct{} // a mutex that minds a context
	held int64
	next int64 // how many are reserved when these are used up
	left int64 // in the database, when it was last asked
}

// New returns allowances that remember so many keys. Beyond that an arbitrary one
// is forgotten, with what is left of its block.
func New(maxKeys int, reserve Reserve) *Allowances {
	return &Allowances{reserve: reserve, max: maxKeys, keys: map[keyserver.ID]*block{}}
}

// Taken is one use.
type Taken struct {
	// Left is what all processes have left beyond their blocks, when this one last
	// took a block.
	Left int64
	// Fresh is the first use of a block.
	Fresh bool
}

// Peek answers what Take would, and takes nothing.
func (a *Allowances) Peek(ctx context.Context, key keyserver.ID) (taken Taken, err error) {
	if a.holds(key) {
		return taken, nil
	}
	_, taken.Left, err = a.reserve(ctx, key, 0)
	if err == nil && taken.Left == 0 {
		err = ErrNone
	}
	return taken, err
}

// holds reports whether this process has a time left. While somebody takes one it is
// taken for having.
func (a *Allowances) holds(key keyserver.ID) bool {
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

// Take uses one of a key's times. ErrNone where this would be one too many.
func (a *Allowances) Take(ctx context.Context, key keyserver.ID) (taken Taken, err error) {
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

func (a *Allowances) block(key keyserver.ID) *block {
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
