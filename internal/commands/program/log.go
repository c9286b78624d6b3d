package program

import (
	"io"
	"log/slog"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/urltext"
)

// NewLogger returns a logger that writes JSON lines from this level up. It logs only the scheme and host of
// URLs.
func NewLogger(w io.Writer, level string) (*slog.Logger, error) {
	var l slog.Level
	switch level {
	case "debug":
		l = slog.LevelDebug
	case "info":
		l = slog.LevelInfo
	case "warn":
		l = slog.LevelWarn
	case "error":
		l = slog.LevelError
	default:
		return nil, Usagef("--log-level is %q; it must be debug, info, warn or error", level)
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l, ReplaceAttr: explained})), nil
}

// explained logs errors with their causes, and only the scheme and host of URLs.
func explained(groups []string, a slog.Attr) slog.Attr {
	if err, is := a.Value.Any().(error); is && err != nil {
		a.Value = slog.StringValue(fault.Explain(err))
	}
	return urltext.Attr(groups, a)
}
