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

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/brief"
)

const (
	// maxCall limits a call whose deadline is longer or missing. The default deadline of kube-apiserver is 3 s.
	maxCall = 30 * time.Second
	// maxUnderWay is the maximum number of concurrent calls. Further calls wait. kube-apiserver makes only one call for
	// each seed that it does not know yet.
	maxUnderWay = 16
	// maxUID limits the length of values of a caller in the log, in bytes.
	maxUID = 128
)

// each handles every call. It limits the duration, converts an error to a status, and counts and logs the call.
func (p *plugin) each(ctx context.Context, in any, about *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any, err error) {
	method, uid, began := path.Base(about.FullMethod), uidOf(in), p.clock()
	ctx, cancel := context.WithTimeout(ctx, patience(ctx))
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			p.logger.Error("internal error, please report it", "panic", v, "stack", string(debug.Stack()))
			err = refusef(codes.Internal, "internal error of the plugin; see its log")
		}
		err = coded(err)
		p.note(ctx, method, uid, keyOf(answer, in), err, p.clock().Sub(began))
	}()
	select {
	case p.places <- struct{}{}:
		defer func() { <-p.places }()
	case <-ctx.Done():
		return nil, refusef(codes.Unavailable, "the limit of %d concurrent calls is reached, and none of them ended in time; try again", maxUnderWay)
	}
	purpose := "kms " + method
	if uid != "" {
		purpose += " " + uid
	}
	return handle(client.For(ctx, purpose), in)
}

// patience returns the maximum duration of a call. It is shorter than the caller's deadline, so that the caller gets
// the error.
func patience(ctx context.Context) time.Duration {
	end, bounded := ctx.Deadline()
	if !bounded {
		return maxCall
	}
	return min(maxCall, time.Until(end)*9/10)
}

// note counts and logs a call. It does not log successful Status calls, because they are frequent.
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

// uidOf returns the id that the caller gave the call. The logs of both sides contain it.
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

// keyOf returns the key id of a response, or else of the request.
func keyOf(answer, in any) string {
	for _, m := range []any{answer, in} {
		if named, ok := m.(interface{ GetKeyId() string }); ok && named.GetKeyId() != "" {
			return brief.Clip(named.GetKeyId(), maxUID)
		}
	}
	return ""
}
