package trustfiles

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"
)

// Pauses after failed steps. The first pauses are short, because two containers start together and one waits for the
// other.
const (
	retryFirst   = 250 * time.Millisecond
	retryLongest = 10 * time.Second
)

// stepTimeout limits the duration of one step.
const stepTimeout = 30 * time.Second

// loop repeats a step until its context ends.
type loop struct {
	what   string
	each   time.Duration
	logger *slog.Logger
	step   func(context.Context) error
}

// run repeats the step until ctx ends. It returns no error, because a failed step must not end the manager.
func (l loop) run(ctx context.Context) {
	said, retry := "", retryFirst
	for {
		pause := l.each
		switch err := l.once(ctx); {
		case ctx.Err() != nil:
			return
		case err != nil:
			pause, retry = min(l.each, retry), min(2*retry, retryLongest)
			if said != err.Error() {
				said = err.Error()
				l.logger.Warn(l.what, "error", said)
			}
		case said != "":
			said, retry = "", retryFirst
			l.logger.Info(l.what, "recovered", true)
		}
		// The jitter prevents managers that were started together from sending requests together.
		timer := time.NewTimer(pause - rand.N(pause/10+1)) //nolint:gosec // jitter, not a secret
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

func (l loop) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return l.step(ctx)
}
