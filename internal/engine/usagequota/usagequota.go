// Package usagequota limits the number of uses of a key over all processes, without a database write for each use. A
// process reserves a number of uses (a block) in the database, and counts its uses in memory. When the process ends,
// the unused part of its block is lost. So fewer uses than the limit may be possible, but never more.
package usagequota

import (
	"context"
	"errors"
	"sync"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Sizes of blocks. The first block is small, so that a rarely used key loses few uses when a process ends. Further
// blocks double in size, up to maxBlock.
const (
	firstBlock = 256
	maxBlock   = 65536
)

// ErrNone means that no uses are left.
var ErrNone = errors.New("nothing is left of the allowance")

// Reserve takes up to n uses from the quota that all processes share. n may be 0. Reserve returns how many uses it has
// taken, and how many are left for all processes. It is not an error if no use is left.
type Reserve func(ctx context.Context, key keyserver.ID, n int64) (got, left int64, err error)

// Quotas has the quotas of many keys. It is safe for concurrent use.
type Quotas struct {
	reserve Reserve
	max     int // maximum number of keys in memory

	mu   sync.Mutex
	keys map[keyserver.ID]*block
}

// block has the uses of a key that this process has reserved.
type block struct {
	turn chan struct{} // a mutex with a context
	held int64
	next int64 // size of the next block
	left int64 // left for all processes at the last reservation
}

// New returns the quotas of up to maxKeys keys. If there are more keys, it removes an arbitrary key from memory. The
// unused part of its block is lost.
func New(maxKeys int, reserve Reserve) *Quotas {
	return &Quotas{reserve: reserve, max: maxKeys, keys: map[keyserver.ID]*block{}}
}

// Taken is the result of Take.
type Taken struct {
	// Left is the number of uses that were left for all processes when this process last reserved a block.
	Left int64
	// Fresh reports that this is the first use of a block.
	Fresh bool
}

// Peek returns the result that Take would have now. It takes no use.
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

// holds reports whether this process has a reserved use. While another goroutine works on the key, holds returns true.
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

// Take takes one use of a key. It returns ErrNone if no uses are left.
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
