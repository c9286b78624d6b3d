package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestBlocksAreNoted checks the pauses: short if there are more full blocks, long if there are none or after an error.
// An error is logged once and the block is tried again.
func TestBlocksAreNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full, away := errors.New("the disk is full"), errors.New("the database is away")
		answers := []struct {
			more bool
			err  error
			rest time.Duration
		}{
			{true, nil, blockPause}, {true, nil, blockPause}, {false, nil, blockPasses},
			{true, full, blockPasses}, {true, full, blockPasses}, {false, away, blockPasses},
			{true, nil, blockPause}, {false, nil, blockPasses},
		}
		var log bytes.Buffer
		s := &Server{cfg: Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}}
		ctx, cancel := context.WithCancel(t.Context())
		var rests, want []time.Duration
		last := time.Now()
		n := 0
		s.noteBlocks(func(context.Context) (bool, error) {
			if n > 0 {
				rests, want = append(rests, time.Since(last)), append(want, answers[n-1].rest)
			}
			last = time.Now()
			if n == len(answers) {
				cancel()
				return false, context.Canceled // like a store whose context ends; it is not logged
			}
			n++
			return answers[n-1].more, answers[n-1].err
		})(ctx)
		if !slices.Equal(rests, want) {
			t.Errorf("the rests were %s, want %s", rests, want)
		}
		for text, times := range map[string]int{full.Error(): 1, away.Error(): 1, "is written again": 1, "level=ERROR": 2} {
			if got := strings.Count(log.String(), text); got != times {
				t.Errorf("%q is said %d times, want %d:\n%s", text, got, times, log.String())
			}
		}
	})
}
