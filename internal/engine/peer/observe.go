package peer

import (
	"context"
	"path"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/tracing"
)

// Observer has the metrics and traces of calls. The zero Observer records nothing.
type Observer struct {
	Metrics *Metrics
	Tracer  *tracing.Tracer
}

// begin starts the metrics and the trace of one attempt to call a peer. The caller must call ended with the result.
func (c *Client) begin(ctx context.Context, to keyserver.SystemID, method string) (_ context.Context, ended func(error)) {
	began, span := c.Clock(), tracing.Span{}
	if c.Observer.Tracer.Traced(ctx) {
		header := metadata.MD{}
		ctx, span = c.Observer.Tracer.StartClientSpan(ctx, "peer "+path.Base(method), carrier(header))
		span.Set(tracing.Peer, strconv.FormatUint(uint64(to), 10))
		var pairs []string
		for name, values := range header {
			pairs = append(pairs, name, values[0])
		}
		ctx = metadata.AppendToOutgoingContext(ctx, pairs...)
	}
	return ctx, func(err error) {
		c.Observer.Metrics.call(to, method, err, c.Clock().Sub(began))
		span.End(codeUnless(err))
	}
}

// unary observes each attempt to call a peer (grpc.UnaryClientInterceptor).
func (c *Client) unary(to keyserver.SystemID) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, in, out any, conn *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
		ctx, ended := c.begin(ctx, to, method)
		err := call(ctx, method, in, out, conn, options...)
		ended(err)
		return err
	}
}

// serving starts the metrics and the trace of a call from a peer. The caller must call ended with the result.
func (s *Server) serving(ctx context.Context, method string) (_ context.Context, ended func(error)) {
	header, _ := metadata.FromIncomingContext(ctx)
	ctx, span := s.observer.Tracer.StartServerSpan(ctx, "peer "+path.Base(method), carrier(header))
	return ctx, func(err error) {
		if p := placeOf(ctx); p != nil {
			s.observer.Metrics.request(p.peer, method, err)
			if span.Recorded() && plain(p.requestID) {
				span.Set(tracing.RequestID, p.requestID)
			}
		}
		span.End(codeUnless(err))
	}
}

// tracedStream is a stream whose context has a trace.
type tracedStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // of the stream
}

// Context implements grpc.ServerStream.
func (s tracedStream) Context() context.Context { return s.ctx }

func codeUnless(err error) string {
	if err == nil {
		return ""
	}
	return codeOf(err)
}

// carrier is the metadata of a call as a tracing.Carrier.
type carrier metadata.MD

// Get implements tracing.Carrier.
func (c carrier) Get(key string) string {
	if values := metadata.MD(c).Get(key); len(values) == 1 {
		return values[0]
	}
	return ""
}

// Set implements tracing.Carrier.
func (c carrier) Set(key, value string) { metadata.MD(c).Set(key, value) }

// Keys implements tracing.Carrier.
func (c carrier) Keys() []string {
	names := make([]string, 0, len(c))
	for name := range c {
		names = append(names, name)
	}
	return names
}
