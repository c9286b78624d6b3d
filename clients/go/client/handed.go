package client

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
)

// errSpent ends a call whose message was already read and cannot be read again.
var errSpent = errors.New("the message cannot be sent again, because its reader cannot seek")

// retryReader passes a reader from one attempt to the next. The transport may still read for an attempt that has ended, for
// example after an early response. Such reads fail, so that the next attempt gets the remaining bytes.
type retryReader struct {
	from io.Reader
	// rewind moves the reader back to its beginning. If rewind is nil, the next attempt is possible only if nothing was
	// read yet.
	rewind func() error

	begun   atomic.Bool
	turn    atomic.Pointer[attemptReader] // the attempt that may read
	reading chan struct{}                 // a lock for reading and rewinding, of capacity 1
}

func hand(from io.Reader, rewind func() error) *retryReader {
	return &retryReader{from: from, rewind: rewind, reading: make(chan struct{}, 1)}
}

// next returns the reader of the next attempt, or errSpent if the message
// cannot be sent again.
func (h *retryReader) next(ctx context.Context) (io.Reader, error) {
	if h.begun.Load() && h.rewind == nil {
		return nil, errSpent
	}
	select {
	case h.reading <- struct{}{}:
		defer func() { <-h.reading }()
	case <-ctx.Done(): // an earlier attempt still waits for data in a read
		return nil, errSpent
	}
	if h.begun.Load() {
		if h.rewind == nil || h.rewind() != nil {
			return nil, errSpent
		}
	}
	mine := &attemptReader{of: h}
	h.turn.Store(mine)
	return mine, nil
}

// end makes all further reads fail.
func (h *retryReader) end() { h.turn.Store(nil) }

// attemptReader reads for one attempt.
type attemptReader struct{ of *retryReader }

func (t *attemptReader) Read(p []byte) (int, error) {
	t.of.reading <- struct{}{}
	defer func() { <-t.of.reading }()
	if t.of.turn.Load() != t {
		return 0, errSpent
	}
	t.of.begun.Store(true)
	return t.of.from.Read(p)
}
