package lifecycle

import (
	"context"
	"log/slog"
	"time"
)

// Keys are the keys of a key server, whose states change with time.
type Keys interface {
	// Age performs the actions that are due.
	Age(ctx context.Context) error
}

// Loop calls Keys.Age periodically. Every replica runs one.
type Loop struct {
	Keys   Keys
	Every  time.Duration
	Logger *slog.Logger
}

// Run calls Keys.Age until ctx ends. It retries failed actions in the next period, and logs repeated equal errors once.
func (l Loop) Run(ctx context.Context) {
	ticker := time.NewTicker(l.Every)
	defer ticker.Stop()
	said := ""
	for {
		switch err := l.Keys.Age(ctx); {
		case ctx.Err() != nil:
			return
		case err != nil && err.Error() != said:
			said = err.Error()
			l.Logger.Error("due keys could not be rotated or destroyed; trying again", "error", err)
		case err == nil && said != "":
			said = ""
			l.Logger.Info("rotation and destruction of due keys work again")
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
