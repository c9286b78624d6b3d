package rig

import (
	"bytes"
	"sync"
)

// Output keeps the output of a process and signals new output.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.more != nil {
		close(o.more)
		o.more = nil
	}
	return o.text.Write(p)
}

// Grown returns a channel that is closed at the next output.
func (o *Output) Grown() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.more == nil {
		o.more = make(chan struct{})
	}
	return o.more
}

// String returns the output so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// tail is how much of an output an error message contains.
const tail = 20_000

// Tail returns the end of the output.
func (o *Output) Tail() string {
	text := o.String()
	return text[max(0, len(text)-tail):]
}
