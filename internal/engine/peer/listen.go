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
	"google.golang.org/grpc/tap"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/peer/peerpb"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Limits of the work and the memory that peers may cause on this key server.
const (
	maxStreams = maxPeerCalls // per connection, because other connections may be broken
	// maxPackage is the maximum size of a request in bytes. It suffices for a message that needs no stream, or a text
	// with its associated data, and for the description of the caller.
	maxPackage     = pieceLen + 16<<10
	maxHeaderBytes = 16 << 10
	// Windows of gRPC. A stream has up to one window of data that the server has not read yet. The window of a
	// connection does not limit memory: gRPC reopens it when data arrives, not when data is read. The number of calls
	// limits memory.
	streamWindow     = 512 << 10
	connectionWindow = 2 << 20
	// socketBuffer is the maximum size of one write to the network and of one read. With 32 KiB, the default of gRPC,
	// and half the windows, a long message took a third longer.
	socketBuffer = 128 << 10
	// Time limits of a call, from the arrival of its headers. An earlier deadline of the peer takes precedence. A peer
	// waits at most for its --peer-timeout, which is at most 10 seconds.
	maxCall   = 15 * time.Second
	maxStream = 2 * time.Minute
)

// GRPC returns a gRPC server for the peers that the gate accepts.
func (s *Server) GRPC(g *Gate) *grpc.Server {
	srv := grpc.NewServer(
		grpc.ForceServerCodecV2(protobuf), grpc.Creds(g), grpc.ConnectionTimeout(handshakeTimeout),
		grpc.NumStreamWorkers(workers()), grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxRecvMsgSize(maxPackage), grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.WriteBufferSize(socketBuffer), grpc.ReadBufferSize(socketBuffer),
		grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(connectionWindow),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout, MaxConnectionAge: maxAge}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingAfter / 2}),
		grpc.InTapHandle(s.tap), grpc.UnaryInterceptor(s.unary), grpc.StreamInterceptor(s.stream),
	)
	peerpb.RegisterKeyServerServer(srv, s)
	return srv
}

// workers returns the number of goroutines that serve streams one after another. New goroutines would have to grow
// their stacks for each call (MEASURED).
func workers() uint32 {
	n := 4 * runtime.GOMAXPROCS(0)
	if n > math.MaxUint16 {
		return math.MaxUint16
	}
	return uint32(n) //nolint:gosec // bounded above
}

// tap takes a place for a call when its headers have arrived, and sets its time limit. gRPC calls every other hook only
// after it has read the message. tap must not block.
func (s *Server) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	conn := connOf(ctx)
	if conn == nil { // not from a peer: the handler refuses the call later
		return ctx, nil
	}
	within := s.maxCall
	switch info.FullMethodName {
	case peerpb.KeyServer_HMACStream_FullMethodName, peerpb.KeyServer_MACStream_FullMethodName, peerpb.KeyServer_VerifyMACStream_FullMethodName:
		within = s.maxStream
	}
	p, err := s.limiter.enter(ctx, conn.peer.System)
	if err != nil {
		s.overloaded(conn, info.FullMethodName, err)
		return ctx, statusOf(err)
	}
	limited, cancel := context.WithTimeout(ctx, within)
	context.AfterFunc(ctx, func() { cancel(); p.leave() })
	return withPlace(limited, p), nil
}

// overloaded logs a call beyond the limits. If the peer continues to send such calls, overloaded closes the connection.
func (s *Server) overloaded(conn *conn, method string, refusal error) {
	if s.complaints.AllowN(s.clock(), 1) {
		s.logger.Warn("a peer's call was refused", "peer", conn.peer.System, "method", method, "cause", refusal)
	}
	if s.limiter.flooded(conn.peer.System) {
		go func() { _ = conn.Close() }() // in a goroutine: gRPC has a lock here that it also takes to close
	}
}

func (s *Server) unary(ctx context.Context, in any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (out any, err error) {
	done, err := work(ctx)
	if err != nil {
		return nil, s.answer(ctx, info.FullMethod, err)
	}
	defer done()
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, s.panicked(info.FullMethod, p)
		}
	}()
	ctx, ended := s.serving(ctx, info.FullMethod)
	out, err = handle(ctx, in)
	err = s.answer(ctx, info.FullMethod, err)
	ended(err)
	return out, err
}

func (s *Server) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	ctx := stream.Context()
	done, err := work(ctx)
	if err != nil {
		return s.answer(ctx, info.FullMethod, err)
	}
	defer done()
	defer func() {
		if p := recover(); p != nil {
			err = s.panicked(info.FullMethod, p)
		}
	}()
	ctx, ended := s.serving(ctx, info.FullMethod)
	err = s.answer(ctx, info.FullMethod, handle(srv, tracedStream{stream, ctx}))
	ended(err)
	return err
}

// answer converts an error into a status. It logs the details, which no peer receives.
func (s *Server) answer(ctx context.Context, method string, err error) error {
	if err == nil {
		return nil
	}
	f := fault.As(err)
	switch {
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, errMalformed):
		s.malformed(ctx, method, f)
	case f == nil:
		if st, ok := status.FromError(err); ok && (st.Code() == codes.Canceled || st.Code() == codes.Unavailable) { // the peer gave up, or is no longer permitted
			return err
		}
		s.logger.Error("a peer's call failed", "method", method, "cause", err)
	case errors.Unwrap(f) != nil:
		s.logger.Warn("a peer's call failed", "method", method, "code", string(f.Code), "detail", f.Detail, "cause", errors.Unwrap(f))
	}
	return statusOf(err)
}

// malformed logs a call that was rejected as malformed and therefore has no audit row. The number of log lines is
// limited, because a peer can send many such calls.
func (s *Server) malformed(ctx context.Context, method string, refusal *fault.Error) {
	p := placeOf(ctx)
	if p == nil || !s.complaints.AllowN(s.clock(), 1) {
		return
	}
	id := p.requestID
	if !plain(id) {
		id = ""
	}
	s.logger.Warn("a peer's call was malformed", "peer", p.peer, "method", method, "requestId", id, "detail", refusal.Detail)
}

// panicked logs the type and the stack of a panic. It omits the value, which may contain secret data of the call.
func (s *Server) panicked(method string, p any) error {
	s.logger.LogAttrs(context.Background(), slog.LevelError, "panic",
		slog.String("method", method), slog.String("panic", fmt.Sprintf("%T", p)), slog.String("stack", string(debug.Stack())))
	return statusOf(errors.New("panic"))
}
