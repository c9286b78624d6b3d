package client

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
)

// errSpent ends a call whose message was read and cannot be read again.
var errSpent = errors.New("the message cannot be sent again: its reader does not seek")

// handed is a reader that goes from one attempt to the next. The transport may still read for
// an attempt that was answered early, or that it has given up itself: what is left is the next
// one's.
type handed struct {
	from io.Reader
	// rewind brings from back to where it began; nil where that cannot be done, so that it is
	// handed on only as long as nothing of it was read.
	rewind func() error

	begun   atomic.Bool
	turn    atomic.Pointer[turn] // whose it is
	reading chan struct{}        // has room for the one who reads or rewinds
}

func hand(from io.Reader, rewind func() error) *handed {
	return &handed{from: from, rewind: rewind, reading: make(chan struct{}, 1)}
}

// next is the reader of the next attempt, errSpent where there can be none.
func (h *handed) next(ctx context.Context) (io.Reader, error) {
	if h.begun.Load() && h.rewind == nil {
		return nil, errSpent
	}
	select {
	case h.reading <- struct{}{}:
		defer func() { <-h.reading }()
	case <-ctx.Done(): // somebody reads, and what he waits for does not come
		return nil, errSpent
	}
	if h.begun.Load() {
		if h.rewind == nil || h.rewind() != nil {
			return nil, errSpent
		}
	}
	mine := &turn{of: h}
	h.turn.Store(mine)
	return mine, nil
}

// end lets nobody read on.
func (h *handed) end() { h.turn.Store(nil) }

// turn reads for one attempt.
type turn struct{ of *handed }

// Read implements io.Reader.
func (t *turn) Read(p []byte) (int, error) {
	t.of.reading <- struct{}{}
	defer func() { <-t.of.reading }()
	if t.of.turn.Load() != t {
		return 0, errSpent
	}
	t.of.begun.Store(true)
	return t.of.from.Read(p)
}
