package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/peer"
)

// Limits of --peer-timeout. Most requests have 15 seconds in total.
const (
	minPeerTimeout = 100 * time.Millisecond
	maxPeerTimeout = 10 * time.Second
)

func (c *Config) validatePeers() error {
	if c.PeerTimeout < minPeerTimeout || c.PeerTimeout > maxPeerTimeout {
		return fmt.Errorf("--peer-timeout is %s; it must be from %s to %s", c.PeerTimeout, minPeerTimeout, maxPeerTimeout)
	}
	return nil
}

// openPeerClient returns the client for calls to peers. It must be called before the engine is opened, because the
// engine uses the client. So Shutdown closes the client after the last request.
func (s *Server) openPeerClient() *peer.Client {
	client := peer.NewClient(peer.ClientConfig{
		Registry: s.peerRegistry, Certificate: s.leaf.issued.ForPeers, Timeout: s.cfg.PeerTimeout, Clock: s.cfg.Clock, Logger: s.cfg.Logger, Observer: s.observer,
	})
	s.store.OnChange(client.Changed)
	s.leaf.issued.OnIssuer = client.Renew
	s.onClose(func(context.Context) error { return client.Close() })
	return client
}

// servePeers serves calls of registered peers until Shutdown.
func (s *Server) servePeers(l net.Listener) {
	gate := peer.NewGate(s.peerRegistry, s.leaf.issued.ForPeers, s.cfg.Clock, s.cfg.Logger)
	s.store.OnChange(gate.Changed)
	answers := peer.NewServer(s.engine, s.cosigner, s.system, s.cfg.Clock, s.cfg.Logger)
	answers.Observe(s.observer)
	srv := answers.GRPC(gate)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(gate.Listen(l)); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			s.failed <- fmt.Errorf("the listener on %s stopped: %w", l.Addr(), err)
		}
	}()
	s.onClose(func(ctx context.Context) error {
		err := drain(ctx, srv)
		<-done
		gate.Close()
		return err
	})
}

func drain(ctx context.Context, srv *grpc.Server) error {
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		srv.GracefulStop()
	}()
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		srv.Stop()
		<-drained
		return fmt.Errorf("calls of peers were still in progress: %w", ctx.Err())
	}
}
