package peer

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/peer/peerpb"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Times of a connection: pingAfter without data it is checked, and closed if no response comes within pingTimeout. A
// failed connection is tried again after firstRedial to lastRedial.
const (
	pingAfter   = 10 * time.Second
	pingTimeout = 5 * time.Second
	firstRedial = 100 * time.Millisecond
	lastRedial  = time.Second
	idleTimeout = 5 * time.Minute // without a call, before the connection is closed
	// maxAge is the age at which a connection is replaced, without interrupting calls. Both sides then send their
	// current certificates and CAs.
	maxAge = 5 * time.Minute
)

// pool has the connections and limits of a client for one peer.
type pool struct {
	peer    keyserver.TrustedServer
	conns   []*grpc.ClientConn
	next    atomic.Uint32
	places  chan struct{} // has one element for each call in progress
	lists   lists
	breaker breaker
	users   sync.WaitGroup
}

// connect creates a pool. It opens no connection before the first call.
func (c *Client) connect(peer keyserver.TrustedServer) (*pool, error) {
	p := &pool{peer: peer, places: make(chan struct{}, maxInFlight), lists: make(lists, maxPeerLists)}
	target := "passthrough:///" + net.JoinHostPort(peer.Name, strconv.Itoa(int(peer.Port)))
	for range connections {
		conn, err := grpc.NewClient(target,
			grpc.WithTransportCredentials(key{c.endpoint, peer.System}),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: firstRedial, Multiplier: 1.6, Jitter: 0.2, MaxDelay: lastRedial},
				MinConnectTimeout: dialTimeout,
			}),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout}),
			grpc.WithWriteBufferSize(socketBuffer), grpc.WithReadBufferSize(socketBuffer),
			grpc.WithInitialWindowSize(streamWindow), grpc.WithInitialConnWindowSize(connectionWindow),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(protobuf), grpc.MaxCallRecvMsgSize(maxAnswer)),
			grpc.WithUnaryInterceptor(c.unary(peer.System)),
			grpc.WithMaxHeaderListSize(maxHeaderBytes), grpc.WithIdleTimeout(idleTimeout), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableHealthCheck(),
		)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connect to the peer %d: %w", peer.System, err), p.close())
		}
		p.conns = append(p.conns, conn)
	}
	return p, nil
}

func (p *pool) close() error {
	var errs []error
	for _, conn := range p.conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

// stub returns the client on the next connection. If that connection is not established, stub prefers a connection that
// is ready, because a streamed message is not retried.
func (p *pool) stub() peerpb.KeyServerClient {
	turn := int(p.next.Add(1)) % len(p.conns)
	chosen := p.conns[turn]
	if s := chosen.GetState(); s == connectivity.TransientFailure || s == connectivity.Connecting {
		for _, other := range p.conns {
			if other.GetState() == connectivity.Ready {
				chosen = other
			}
		}
	}
	return peerpb.NewKeyServerClient(chosen)
}

// enter takes a place for a call to the peer. It fails if the breaker is open or if no place is free.
func (p *pool) enter(now time.Time) error {
	if wait, ok := p.breaker.allow(now); !ok {
		return unavailable(p.peer.System, wait, "did not respond to recent calls")
	}
	select {
	case p.places <- struct{}{}:
		return nil
	default:
		p.breaker.report(now, unknown)
		return fault.Temporary(fault.Overloaded, fault.ScopeProcess, time.Second,
			"%d calls to the peer %d are in progress, the limit per peer; try again", maxInFlight, p.peer.System).
			Audited(fault.ReasonLimit)
	}
}

// leave releases the place of a call and reports the outcome of the call.
func (p *pool) leave(now time.Time, o outcome) {
	<-p.places
	p.breaker.report(now, o)
	p.users.Done()
}

func unavailable(peer keyserver.SystemID, wait time.Duration, why string) *fault.Error {
	return fault.Temporary(fault.PeerUnavailable, fault.ScopeProcess, max(wait, time.Second),
		"the peer %d, which owns the object, %s; try again", peer, why).Audited(fault.ReasonPeerUnavailable)
}
