package server

import (
	"context"
	"time"
)

const (
	// blockPasses is how often it is seen whether a block of the trail is full.
	blockPasses = 2 * time.Second
	// blockPause is between two blocks where there are many, so that others can write.
	blockPause = 100 * time.Millisecond
)

// noteBlocks notes which audit rows are where, behind those who write them. Every
// replica does; a block is noted once.
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
				s.cfg.Logger.Error("what finds audit rows could not be written; it is tried again, and filters look through all rows meanwhile", "error", err)
			case err == nil && said != "":
				said = ""
				s.cfg.Logger.Info("what finds audit rows is written again")
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
