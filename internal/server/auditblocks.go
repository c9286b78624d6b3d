package server

import (
	"context"
	"time"
)

const (
	// blockPasses is how often the process checks whether a block of audit rows is full. A block is a range of
	// consecutive rows that is indexed as a unit.
	blockPasses = 2 * time.Second
	// blockPause is the pause after a full block was indexed, so that other transactions can write.
	blockPause = 100 * time.Millisecond
)

// noteBlocks returns a loop that indexes full blocks of audit rows with the function fill. Every replica runs this
// loop, but each block is indexed only once.
func (s *Server) noteBlocks(fill func(context.Context) (more bool, err error)) func(context.Context) {
	return func(ctx context.Context) {
		said := ""
		for {
			more, err := fill(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil && err.Error() != said:
				said = err.Error()
				s.cfg.Logger.Error("cannot write the index of audit rows; retrying, and filters read all rows until it succeeds", "error", err)
			case err == nil && said != "":
				said = ""
				s.cfg.Logger.Info("the index of audit rows is written again")
			}
			pause := blockPasses
			if more && err == nil {
				pause = blockPause
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
		}
	}
}
