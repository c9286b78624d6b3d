package peer

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/peer/peerpb"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Limits of a message that is sent.
const (
	// pieceLen is the maximum length of one piece of a message in bytes. A message that fits one piece needs no stream.
	pieceLen      = 64 << 10
	streamTimeout = maxStream - 10*time.Second
)

// HMAC implements keyserver.Federated. If the message cannot be read completely, its last piece is not sent, so the
// peer never returns the HMAC of an incomplete message.
func (r remote) HMAC(ctx context.Context, by keyserver.Caller, in keyserver.HMACRequest) (mac [keyserver.MACSize]byte, err error) {
	call := callOf(by)
	out, err := deliver(ctx, r, in.Message, delivery[peerpb.HMACResponse]{
		first:  &peerpb.HMACPiece{Call: call, Link: []byte(in.Link)},
		method: peerpb.KeyServer_HMACStream_FullMethodName, stream: peerpb.KeyServerClient.HMACStream,
		whole: func(ctx context.Context, text []byte) (*peerpb.HMACResponse, error) {
			return callUnary(ctx, r, uses, &peerpb.HMACRequest{Call: call, Link: []byte(in.Link), Data: text}, peerpb.KeyServerClient.HMAC)
		},
	})
	if err != nil {
		return mac, err
	}
	return macFrom(r, out.GetMac())
}

// macFrom returns the MAC in a peer's response. It fails if the MAC has a wrong length.
func macFrom(r remote, sum []byte) (mac [keyserver.MACSize]byte, err error) {
	if len(sum) != len(mac) {
		return mac, r.invalidResponse("an HMAC")
	}
	copy(mac[:], sum)
	return mac, nil
}

// delivery describes the calls that send a message to a peer.
type delivery[Out any] struct {
	// whole is the call for a message that fits one piece.
	whole func(ctx context.Context, text []byte) (*Out, error)
	// stream is the call for a longer message, with the name method. first is the first package of the stream.
	method string
	stream func(peerpb.KeyServerClient, context.Context, ...grpc.CallOption) (grpc.ClientStreamingClient[peerpb.HMACPiece, Out], error)
	first  *peerpb.HMACPiece
	// mac returns the MAC that is sent with the last piece. It is called after the message is written. mac is nil if no
	// MAC is sent.
	mac func() []byte
}

// deliver sends a message and waits for the response.
func deliver[Out any](ctx context.Context, r remote, text keyserver.Message, how delivery[Out]) (*Out, error) {
	ctx, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	w := &writer[Out]{ctx: ctx, remote: r, how: how, rest: pieces.Get(0)}
	defer func() { pieces.Put(w.rest) }()
	_, err := text.WriteTo(w)
	if w.err != nil {
		err = w.err // w.err has the cause; err only says that writing failed
	}
	if err != nil {
		w.abandon()
		return nil, err
	}
	return w.conclude()
}

// pieces is the pool of buffers for pieces of messages. The pools of gRPC would clear each buffer that is returned.
var pieces piecePool

type piecePool struct{ free sync.Pool }

var _ mem.BufferPool = &piecePool{}

// Get implements mem.BufferPool.
func (p *piecePool) Get(n int) *[]byte {
	b, ok := p.free.Get().(*[]byte)
	if !ok {
		fresh := make([]byte, pieceLen)
		b = &fresh
	}
	*b = (*b)[:n]
	return b
}

// Put implements mem.BufferPool.
func (p *piecePool) Put(b *[]byte) { p.free.Put(b) }

// writer sends the bytes that are written to it. If they fit one piece, it uses one call, otherwise a stream.
type writer[Out any] struct {
	ctx    context.Context //nolint:containedctx // of the one message that the writer sends
	remote remote
	how    delivery[Out]

	rest   *[]byte // bytes that are not sent yet, in a buffer of pieces
	pool   *pool   // nil until the stream is open
	stream grpc.ClientStreamingClient[peerpb.HMACPiece, Out]
	cancel context.CancelFunc
	ended  func(error) // reports the end of the stream to the observer
	err    error
}

// Write implements io.Writer.
func (w *writer[Out]) Write(b []byte) (int, error) {
	written := len(b)
	for len(*w.rest)+len(b) > pieceLen {
		n := pieceLen - len(*w.rest)
		*w.rest, b = append(*w.rest, b[:n]...), b[n:]
		if w.err = w.send(false); w.err != nil {
			return 0, w.err
		}
	}
	*w.rest = append(*w.rest, b...)
	return written, nil
}

// conclude sends the unsent bytes and waits for the response.
func (w *writer[Out]) conclude() (*Out, error) {
	if w.stream == nil {
		return w.how.whole(w.ctx, *w.rest)
	}
	if err := w.send(true); err != nil {
		return nil, err
	}
	late := w.watchdog()
	out, err := w.stream.CloseAndRecv()
	slow := !late.Stop()
	if err != nil {
		return nil, w.broken(err, slow)
	}
	w.end(answered, nil)
	return out, nil
}

// send sends the unsent bytes as a piece. gRPC puts their buffer back into pieces.
func (w *writer[Out]) send(last bool) error {
	if w.stream == nil {
		if err := w.open(); err != nil {
			return err
		}
		if err := w.push(w.how.first); err != nil {
			return err
		}
	}
	in := &outbound{data: mem.NewBuffer(w.rest, &pieces), last: last}
	if last && w.how.mac != nil {
		in.mac = w.how.mac()
	}
	w.rest = pieces.Get(0)
	return w.push(in)
}

func (w *writer[Out]) open() (err error) {
	r := w.remote
	p, err := r.client.enter(w.ctx, r.peer)
	if err != nil {
		return r.unreached(err)
	}
	ctx, cancel := context.WithCancel(w.ctx) //nolint:gosec // end calls it
	w.pool, w.cancel = p, cancel
	ctx, w.ended = r.client.begin(ctx, r.peer.System, w.how.method)
	late := w.watchdog()
	w.stream, err = w.how.stream(p.stub(), ctx)
	if slow := !late.Stop(); err != nil {
		return w.broken(err, slow)
	}
	return nil
}

// push sends one package. If the peer has ended the stream, push returns the peer's error.
func (w *writer[Out]) push(in any) error {
	late := w.watchdog()
	err := w.stream.SendMsg(in)
	slow := !late.Stop()
	if errors.Is(err, io.EOF) {
		_, err = w.stream.CloseAndRecv()
	}
	if err != nil {
		return w.broken(err, slow)
	}
	return nil
}

// watchdog cancels the stream if the peer takes longer than the time limit of a call. The caller must stop the watchdog
// while it waits for more bytes of the message.
func (w *writer[Out]) watchdog() *time.Timer {
	return time.AfterFunc(w.remote.client.Timeout, w.cancel)
}

// broken ends the stream and returns the fault for err.
func (w *writer[Out]) broken(err error, slow bool) error {
	if slow && refusalIn(err) == nil && w.ctx.Err() == nil {
		w.end(failed, context.DeadlineExceeded)
		return unavailable(w.remote.peer.System, 0, "did not respond in time").Because(err)
	}
	w.end(judge(w.ctx, err), err)
	return w.remote.explain(w.ctx, err)
}

// abandon ends a stream whose message cannot be completed.
func (w *writer[Out]) abandon() { w.end(unknown, context.Canceled) }

// end releases the place of the stream. A second call has no effect.
func (w *writer[Out]) end(o outcome, err error) {
	if w.pool == nil {
		return
	}
	w.cancel()
	w.pool.leave(w.remote.client.Clock(), o)
	w.ended(err)
	w.pool = nil
}
