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

// Bounds of the work and memory that peers may cause on this key server.
const (
	maxStreams = maxPeerCalls // on one connection, because the other connections may be broken
	// maxPackage fits the largest legal request, including the description of its caller:
	// a message that needs no stream, or a text with its associated data.
	maxPackage     = pieceLen + 16<<10
	maxHeaderBytes = 16 << 10
	// A stream holds up to one window of a message that the server has not read yet. The window of a connection does
	// not bound memory, because gRPC reopens it when data arrives, not when data is read. The number of calls bounds
	// memory.
	streamWindow     = 512 << 10
	connectionWindow = 2 << 20
	// socketBuffer is the size of one write to the network and of one read from it. With
	// gRPC's own 32 KiB and half the windows, a long message took a third longer.
	socketBuffer = 128 << 10
	// Time limits of a call from its headers on, unless the peer's own deadline is
	// earlier. No peer waits longer for a call than --peer-timeout permits, which is 10
	// seconds.
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

// workers returns the number of goroutines that serve one stream after another, which
// saves growing a stack for each call (MEASURED).
func workers() uint32 {
	n := 4 * runtime.GOMAXPROCS(0)
	if n > math.MaxUint16 {
		return math.MaxUint16
	}
	return uint32(n) //nolint:gosec // bounded above
}

// tap takes a place for a call when its headers have arrived, and sets its time limit.
// gRPC reads the message before it calls any other hook. tap must not block.
func (s *Server) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	conn := connOf(ctx)
	if conn == nil { // not from a peer: the handler refuses the call
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

// overloaded logs that a call found no place, and closes the connection of a peer that
// does not stop.
func (s *Server) overloaded(conn *conn, method string, refusal error) {
	if s.complaints.AllowN(s.clock(), 1) {
		s.logger.Warn("a peer's call was refused", "peer", conn.peer.System, "method", method, "cause", refusal)
	}
	if s.limiter.flooded(conn.peer.System) {
		go func() { _ = conn.Close() }() // gRPC holds a lock here that it also takes to close; no caller needs the error
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

// answer converts a failure into a status, and logs the details that no peer receives.
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

// malformed logs a call that was rejected for its shape and therefore has no row in the
// audit log. It is rate-limited because a peer can send many.
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

// panicked logs the type and the stack of a panic. It omits the value, which may quote
// the data in progress.
func (s *Server) panicked(method string, p any) error {
	s.logger.LogAttrs(context.Background(), slog.LevelError, "panic",
		slog.String("method", method), slog.String("panic", fmt.Sprintf("%T", p)), slog.String("stack", string(debug.Stack())))
	return statusOf(errors.New("panic"))
}
