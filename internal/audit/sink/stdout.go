package sink

import (
	"context"
	"errors"
	"io"
)

// Stdout writes a line of JSON for each event. That a line is written is all that can
// be known of whoever reads it.
type Stdout struct {
	out     io.Writer
	writing chan error // takes the result of the write that is under way
}

// NewStdout writes to out, which nobody has to read in time.
func NewStdout(out io.Writer) *Stdout { return &Stdout{out: out} }

// send waits no longer than it may. Nobody can take back a write that a full pipe
// holds, so that the next one waits for it first.
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

// close leaves it open: a write may be under way.
func (s *Stdout) close() {}
