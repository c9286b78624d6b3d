package rig

import (
	"bytes"
	"sync"
)

// Output stores the output of a process and signals new output.
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

// Grown returns a channel that is closed when there is new output.
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

// tail is the maximum length of the output in an error message.
const tail = 20_000

// Tail returns the end of the output.
func (o *Output) Tail() string {
	text := o.String()
	return text[max(0, len(text)-tail):]
}
