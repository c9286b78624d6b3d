package peer

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/peer/peerpb"
)

// Bounds of a message on its way.
const (
	// pieceLen is how much of a message travels together. A message that fits
	// one piece needs no stream.
	pieceLen      = 64 << 10
	streamTimeout = maxStream - 10*time.Second
)

// HMAC implements keyserver.Federated. A message that is malformed ends a
// stream before its last piece, so that the peer never answers for it.
func (r remote) HMAC(ctx context.Context, by keyserver.Caller, in keyserver.HMACRequest) (mac [keyserver.MACSize]byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	w := &writer{ctx: ctx, remote: r, call: callOf(by), link: in.Link, rest: pieces.Get(0)}
	defer func() { pieces.Put(w.rest) }()
	_, err = in.Message.WriteTo(w)
	if w.err != nil {
		err = w.err // the message's own words for it would be about the message
	}
	if err != nil {
		w.abandon()
		return mac, err
	}
	out, err := w.conclude()
	if err != nil {
		return mac, err
	}
	if copy(mac[:], out.GetMac()) != len(mac) || len(out.GetMac()) != len(mac) {
		return [keyserver.MACSize]byte{}, r.nonsense("an HMAC")
	}
	return mac, nil
}

// pieces are the buffers of messages on their way. gRPC's own pools clear each
// buffer that they hand out.
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

// writer sends what is written to it: in one call where it is short, and in
// pieces where it is not.
type writer struct {
	ctx    context.Context //nolint:containedctx // of the one message that it is for
	remote remote
	call   *peerpb.Call
	link   keyserver.HiddenLink

	rest   *[]byte // what was written and not sent, one of pieces
	pool   *pool   // once there is a stream
	stream grpc.ClientStreamingClient[peerpb.HMACPiece, peerpb.HMACResponse]
	cancel context.CancelFunc
	err    error
}

// Write implements io.Writer.
func (w *writer) Write(b []byte) (int, error) {
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

// conclude sends what is left and waits for the answer.
func (w *writer) conclude() (*peerpb.HMACResponse, error) {
	if w.stream == nil {
		in := &peerpb.HMACRequest{Call: w.call, Link: []byte(w.link), Data: *w.rest}
		return ask(w.ctx, w.remote, uses, in, peerpb.KeyServerClient.HMAC)
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
	w.end(answered)
	return out, nil
}

// send sends a piece. gRPC gives it back to the others.
func (w *writer) send(last bool) error {
	if w.stream == nil {
		if err := w.open(); err != nil {
			return err
		}
		if err := w.push(&peerpb.HMACPiece{Call: w.call, Link: []byte(w.link)}); err != nil {
			return err
		}
	}
	in := &outbound{data: mem.NewBuffer(w.rest, &pieces), last: last}
	w.rest = pieces.Get(0)
	return w.push(in)
}

func (w *writer) open() (err error) {
	r := w.remote
	p, err := r.client.enter(w.ctx, r.peer)
	if err != nil {
		return r.unreached(err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	w.pool, w.cancel = p, cancel
	late := w.watchdog()
	w.stream, err = p.stub().HMACStream(ctx)
	if slow := !late.Stop(); err != nil {
		return w.broken(err, slow)
	}
	return nil
}

// push sends one package. A stream that the peer has ended says why.
func (w *writer) push(in any) error {
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

// watchdog ends the stream where the peer takes longer than a call may. The
// time in which the caller's own message arrives does not count.
func (w *writer) watchdog() *time.Timer { return time.AfterFunc(w.remote.client.Timeout, w.cancel) }

// broken ends the stream with a fault.
func (w *writer) broken(err error, slow bool) error {
	if slow && refusalIn(err) == nil && w.ctx.Err() == nil {
		w.end(failed)
		return unavailable(w.remote.peer.System, 0, "did not answer in time").Because(err)
	}
	w.end(judge(w.ctx, err))
	return w.remote.explain(w.ctx, err)
}

// abandon ends a stream of which the message is of no use.
func (w *writer) abandon() { w.end(unknown) }

// end gives the place of the stream back, once.
func (w *writer) end(o outcome) {
	if w.pool == nil {
		return
	}
	w.cancel()
	w.pool.leave(w.remote.client.Clock(), o)
	w.pool = nil
}
