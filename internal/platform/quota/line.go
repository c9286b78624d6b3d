package quota

import (
	"container/list"
	"context"
	"sync"
)

// Line is a queue in which holders are served in turns: members of one holder are served in the order in
// which they joined, and after each the next holder is served. The zero value is ready for use. The owner
// must lock it.
type Line[K comparable] struct {
	holders map[K]*lineHolder[K]
	next    list.List // of *lineHolder[K] that wait
	waiting int
}

type lineHolder[K comparable] struct {
	key     K
	waiting list.List // of *InLine[K]
	at      *list.Element
}

// InLine is a member that waits in a Line.
type InLine[K comparable] struct {
	turn   chan struct{} // closed by Serve
	holder *lineHolder[K]
	at     *list.Element
}

// Len returns the number of waiting members.
func (l *Line[K]) Len() int { return l.waiting }

// Join adds a member of a holder.
func (l *Line[K]) Join(holder K) *InLine[K] {
	if l.holders == nil {
		l.holders = map[K]*lineHolder[K]{}
	}
	h := l.holders[holder]
	if h == nil {
		h = &lineHolder[K]{key: holder}
		h.at = l.next.PushBack(h)
		l.holders[holder] = h
	}
	w := &InLine[K]{turn: make(chan struct{}), holder: h}
	w.at = h.waiting.PushBack(w)
	l.waiting++
	return w
}

// Wait waits for the turn of w. If ctx ends first, Wait takes the owner's lock and fails. If the turn has
// come at the same time, it returns the turn with giveBack.
func (l *Line[K]) Wait(ctx context.Context, w *InLine[K], owner sync.Locker, giveBack func()) error {
	return await(ctx, w.turn, owner, giveBack, func() { l.leave(w) })
}

// await waits until turn is closed. If ctx ends first, it fails. With the owner's lock held, it then calls
// giveBack if turn is closed by now, and leave otherwise.
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

func (l *Line[K]) leave(w *InLine[K]) {
	w.holder.waiting.Remove(w.at)
	l.waiting--
	if w.holder.waiting.Len() == 0 {
		l.next.Remove(w.holder.at)
		delete(l.holders, w.holder.key)
	}
}

// Serve serves the next member. The line must not be empty.
func (l *Line[K]) Serve() {
	h := l.next.Front().Value.(*lineHolder[K]) //nolint:errcheck // the list holds nothing else
	w := h.waiting.Front().Value.(*InLine[K])  //nolint:errcheck // the list holds nothing else
	l.next.MoveToBack(h.at)
	l.leave(w)
	close(w.turn)
}
