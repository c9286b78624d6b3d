package lifecycle

import (
	"context"
	"log/slog"
	"time"
)

// Keys are the keys of a key server, which age by themselves.
type Keys interface {
	// Age does what is due.
	Age(ctx context.Context) error
}

// Loop asks the keys from time to time. Every replica has one.
type Loop struct {
	Keys   Keys
	Every  time.Duration
	Logger *slog.Logger
}

// Run goes on until ctx ends. What fails is tried again the next time, and said
// once.
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
			l.Logger.Error("keys that are due could not be rotated or destroyed; it is tried again", "error", err)
		case err == nil && said != "":
			said = ""
			l.Logger.Info("keys that are due are rotated and destroyed again")
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
