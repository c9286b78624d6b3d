package program

import (
	"io"
	"log/slog"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/urltext"
)

// NewLogger returns a logger that writes JSON lines of this level or higher. It reduces URLs to scheme and host.
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

// explained adds the causes to errors, and reduces URLs to scheme and host.
func explained(groups []string, a slog.Attr) slog.Attr {
	if err, is := a.Value.Any().(error); is && err != nil {
		a.Value = slog.StringValue(fault.Explain(err))
	}
	return urltext.Attr(groups, a)
}
