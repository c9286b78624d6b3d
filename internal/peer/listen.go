package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/keyserver-operator/keyserver-operator/internal/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/peer/peerpb"
)

// Bounds of what peers may have this key server do and hold.
const (
	maxStreams     = 256 // calls at once on one connection
	maxPackage     = 256 << 10
	maxHeaderBytes = 16 << 10
	// Of a message on its way, a stream holds one window and a connection
	// another; nothing holds it whole.
	streamWindow     = 512 << 10
	connectionWindow = 2 << 20
	// socketBuffer is what goes to the network, and comes from it, at once. With
	// gRPC's own 32 KiB and half the windows, a long message took a third longer.
	socketBuffer = 128 << 10
	// What the peer's own deadline does not end earlier.
	maxCall   = time.Minute
	maxStream = 2 * time.Minute
)

// GRPC returns what serves the peers that the gate lets in.
func (s *Server) GRPC(g *Gate) *grpc.Server {
	srv := grpc.NewServer(
		grpc.ForceServerCodecV2(protobuf), grpc.Creds(g), grpc.ConnectionTimeout(handshakeTimeout),
		grpc.NumStreamWorkers(workers()), grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxRecvMsgSize(maxPackage), grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.WriteBufferSize(socketBuffer), grpc.ReadBufferSize(socketBuffer),
		grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(connectionWindow),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingAfter / 2}),
		grpc.UnaryInterceptor(s.unary), grpc.StreamInterceptor(s.stream),
	)
	peerpb.RegisterKeyServerServer(srv, s)
	return srv
}

// workers is how many goroutines serve streams again and again, which saves
// growing a stack for each call (MEASURED).
func workers() uint32 {
	n := 4 * runtime.GOMAXPROCS(0)
	if n > math.MaxUint16 {
		return math.MaxUint16
	}
	return uint32(n) //nolint:gosec // bounded above
}

func (s *Server) unary(ctx context.Context, in any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (out any, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxCall)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, s.panicked(info.FullMethod, p)
		}
	}()
	out, err = handle(ctx, in)
	return out, s.answer(ctx, info.FullMethod, err)
}

// stream refuses a stream without an end in time: reading from it would wait
// for as long as the peer likes.
func (s *Server) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	ctx := stream.Context()
	defer func() {
		if p := recover(); p != nil {
			err = s.panicked(info.FullMethod, p)
		}
	}()
	if end, ok := ctx.Deadline(); !ok || time.Until(end) > maxStream {
		return s.answer(ctx, info.FullMethod, malformed("a stream must have a deadline of at most %s", maxStream))
	}
	return s.answer(ctx, info.FullMethod, handle(srv, stream))
}

// answer turns a failure into a status and logs what no peer is told.
func (s *Server) answer(ctx context.Context, method string, err error) error {
	if err == nil {
		return nil
	}
	f := fault.As(err)
	switch {
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case f == nil:
		if st, ok := status.FromError(err); ok && (st.Code() == codes.Canceled || st.Code() == codes.Unavailable) { // the peer gave up, or is let in no more
			return err
		}
		s.logger.Error("a peer's call failed", "method", method, "cause", err)
	case errors.Unwrap(f) != nil:
		s.logger.Warn("a peer's call failed", "method", method, "code", string(f.Code), "detail", f.Detail, "cause", errors.Unwrap(f))
	}
	return statusOf(err)
}

// panicked logs where a panic happened; its value may quote what was worked on.
func (s *Server) panicked(method string, p any) error {
	s.logger.LogAttrs(context.Background(), slog.LevelError, "panic",
		slog.String("method", method), slog.String("panic", fmt.Sprintf("%T", p)), slog.String("stack", string(debug.Stack())))
	return statusOf(errors.New("panic"))
}
