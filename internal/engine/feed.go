package engine

import "sync"

// feed wakes all goroutines that wait for the next change of an object.
type feed struct {
	mu sync.Mutex
	ch chan struct{}
}

func newFeed() *feed { return &feed{ch: make(chan struct{})} }

// wait returns a channel that is closed at the next change. Call wait before you read the state. Otherwise you could
// miss a change between the read and the call.
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
