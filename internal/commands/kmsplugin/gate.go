package kmsplugin

import (
	"context"
	"log/slog"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/brief"
)

const (
	// maxCall bounds a call whose caller would wait for longer; kube-apiserver waits for
	// 3 s unless it is configured otherwise.
	maxCall = 30 * time.Second
	// maxUnderWay is how many calls are worked on at once; others wait. kube-apiserver
	// makes few: one for each seed that it does not know yet.
	maxUnderWay = 16
	// maxUID bounds what is repeated of a caller's words.
	maxUID = 128
)

// each is around every call: it bounds it, turns its error into a status, counts and
// logs it.
func (p *plugin) each(ctx context.Context, in any, about *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any, err error) {
	method, uid, began := path.Base(about.FullMethod), uidOf(in), p.clock()
	ctx, cancel := context.WithTimeout(ctx, patience(ctx))
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			p.logger.Error("a mistake of the program, please report it", "panic", v, "stack", string(debug.Stack()))
			err = refusef(codes.Internal, "a mistake of the plugin; its log has more")
		}
		err = coded(err)
		p.note(ctx, method, uid, keyOf(answer, in), err, p.clock().Sub(began))
	}()
	select {
	case p.places <- struct{}{}:
		defer func() { <-p.places }()
	case <-ctx.Done():
		return nil, refusef(codes.Unavailable, "%d calls are under way, and none has ended in time", maxUnderWay)
	}
	purpose := "kms " + method
	if uid != "" {
		purpose += " " + uid
	}
	return handle(client.For(ctx, purpose), in)
}

// patience is for how long a call is worked on: less than its caller waits, who would learn
// of no reason otherwise.
func patience(ctx context.Context) time.Duration {
	end, bounded := ctx.Deadline()
	if !bounded {
		return maxCall
	}
	return min(maxCall, time.Until(end)*9/10)
}

// note counts and logs a call that has ended. A status that is well is asked for too
// often to be said each time.
func (p *plugin) note(ctx context.Context, method, uid, key string, err error, took time.Duration) {
	code := status.Code(err)
	p.metrics.calls.WithLabelValues(method, code.String()).Inc()
	p.metrics.seconds.WithLabelValues(method).Observe(took.Seconds())
	attributes := []any{"method", method, "code", code.String(), "tookMs", took.Milliseconds()}
	if uid != "" {
		attributes = append(attributes, "uid", uid)
	}
	if key != "" {
		attributes = append(attributes, "key", key)
	}
	level := slog.LevelInfo
	switch {
	case err != nil:
		level = slog.LevelWarn
		attributes = append(attributes, "error", status.Convert(err).Message())
	case method == "Status":
		level = slog.LevelDebug
	}
	p.logger.Log(ctx, level, "kms call", attributes...)
}

// uidOf is how the caller names the call, to be found in both logs.
func uidOf(in any) string {
	named, ok := in.(interface{ GetUid() string })
	if !ok {
		return ""
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, brief.Clip(named.GetUid(), maxUID))
}

// keyOf is the key id of an answer, or of what was asked.
func keyOf(answer, in any) string {
	for _, m := range []any{answer, in} {
		if named, ok := m.(interface{ GetKeyId() string }); ok && named.GetKeyId() != "" {
			return brief.Clip(named.GetKeyId(), maxUID)
		}
	}
	return ""
}
