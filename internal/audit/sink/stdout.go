package sink

import (
	"context"
	"errors"
	"io"
)

// Stdout writes a line of JSON for each event. A written line counts as acknowledged, because the reader of standard
// output sends no acknowledgement.
type Stdout struct {
	out     io.Writer
	writing chan error // receives the result of the pending write
}

// NewStdout returns a Stdout that writes to out. Writes to out may block.
func NewStdout(out io.Writer) *Stdout { return &Stdout{out: out} }

// send returns when ctx ends, even if a full pipe blocks the write. Such a write cannot be cancelled, so the next call
// of send waits until the write ends.
func (s *Stdout) send(ctx context.Context, b *batch) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	list, err := b.messages()
	if err != nil {
		return err
	}
	var lines []byte
	for i := range list {
		lines = append(append(lines, list[i].json...), '\n')
	}
	done := make(chan error, 1)
	s.writing = done
	go func() {
		_, err := s.out.Write(lines)
		done <- err
	}()
	return s.settle(ctx)
}

func (s *Stdout) settle(ctx context.Context) error {
	if s.writing == nil {
		return nil
	}
	select {
	case err := <-s.writing:
		s.writing = nil
		if err != nil {
			return errors.New("standard output cannot be written")
		}
		return nil
	case <-ctx.Done():
		return errSlow
	}
}

// close does nothing, because a write may still be in progress.
func (s *Stdout) close() {}
