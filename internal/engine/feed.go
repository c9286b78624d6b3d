package engine

import "sync"

// feed wakes everybody who waits for the next change.
type feed struct {
	mu sync.Mutex
	ch chan struct{}
}

func newFeed() *feed { return &feed{ch: make(chan struct{})} }

// wait returns a channel that is closed at the next wake. Take it before
// reading the state, so that no change falls between the two.
func (f *feed) wait() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ch
}

func (f *feed) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.ch)
	f.ch = make(chan struct{})
}
