package quota

import (
	"container/list"
	"context"
	"sync"
)

// FairQueue is a queue in which holders are served alternately. Members of one holder are served in the order in which
// they joined. The zero value is ready for use. The caller must protect the queue with a lock.
type FairQueue[K comparable] struct {
	holders map[K]*queueHolder[K]
	next    list.List // of *queueHolder[K] that wait
	waiting int
}

type queueHolder[K comparable] struct {
	key     K
	waiting list.List // of *Waiter[K]
	at      *list.Element
}

// Waiter is a member that waits in a FairQueue.
type Waiter[K comparable] struct {
	turn   chan struct{} // closed by Serve
	holder *queueHolder[K]
	at     *list.Element
}

// Len returns the number of waiting members.
func (l *FairQueue[K]) Len() int { return l.waiting }

// Join adds a waiting member for a holder.
func (l *FairQueue[K]) Join(holder K) *Waiter[K] {
	if l.holders == nil {
		l.holders = map[K]*queueHolder[K]{}
	}
	h := l.holders[holder]
	if h == nil {
		h = &queueHolder[K]{key: holder}
		h.at = l.next.PushBack(h)
		l.holders[holder] = h
	}
	w := &Waiter[K]{turn: make(chan struct{}), holder: h}
	w.at = h.waiting.PushBack(w)
	l.waiting++
	return w
}

// Wait waits until Serve returns w. If ctx ends first, Wait locks owner and fails. If Serve has returned w at the same
// time, Wait also calls giveBack.
func (l *FairQueue[K]) Wait(ctx context.Context, w *Waiter[K], owner sync.Locker, giveBack func()) error {
	return await(ctx, w.turn, owner, giveBack, func() { l.leave(w) })
}

// await waits until turn is closed. If ctx ends first, await locks owner, calls giveBack if turn is closed by then and
// leave otherwise, and fails.
func await(ctx context.Context, turn <-chan struct{}, owner sync.Locker, giveBack, leave func()) error {
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	owner.Lock()
	defer owner.Unlock()
	select {
	case <-turn:
		giveBack()
	default:
		leave()
	}
	return ctx.Err()
}

func (l *FairQueue[K]) leave(w *Waiter[K]) {
	w.holder.waiting.Remove(w.at)
	l.waiting--
	if w.holder.waiting.Len() == 0 {
		l.next.Remove(w.holder.at)
		delete(l.holders, w.holder.key)
	}
}

// Serve removes the next waiting member from the queue and returns it. The queue must not be empty.
func (l *FairQueue[K]) Serve() *Waiter[K] {
	h := l.next.Front().Value.(*queueHolder[K]) //nolint:errcheck // the list holds nothing else
	w := h.waiting.Front().Value.(*Waiter[K])   //nolint:errcheck // the list holds nothing else
	l.next.MoveToBack(h.at)
	l.leave(w)
	close(w.turn)
	return w
}
