package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Failed returns a channel with the error of a listener that stopped unexpectedly.
func (s *Server) Failed() <-chan error { return s.failed }

// Shutdown stops accepting connections, waits for running requests until ctx ends, and closes all parts in the reverse
// order in which they were opened.
func (s *Server) Shutdown(ctx context.Context) error {
	if s.started {
		s.cfg.Logger.InfoContext(ctx, "stopping")
	}
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i](ctx))
	}
	s.closers = nil
	if s.started {
		s.started = false
		s.cfg.Logger.InfoContext(ctx, "stopped")
	}
	return sqlstore.Explain(errors.Join(errs...), s.storeConfig())
}

func (s *Server) onClose(f func(context.Context) error) { s.closers = append(s.closers, f) }

// background runs loop in a goroutine. Shutdown cancels its context and waits for its end.
func (s *Server) background(loop func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		loop(ctx)
	}()
	s.onClose(func(context.Context) error {
		cancel()
		<-done
		return nil
	})
}

func each(ctx context.Context, period time.Duration, work func()) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			work()
		}
	}
}

func (s *Server) serve(l net.Listener, srv *http.Server) {
	srv.ReadHeaderTimeout, srv.IdleTimeout, srv.MaxHeaderBytes = headerTimeout, idleTimeout, maxHeaderBytes
	srv.DisableGeneralOptionsHandler = true // the handler rejects OPTIONS * like any other unknown path
	srv.ErrorLog = log.New(logWriter{s.cfg.Logger}, "", 0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- fmt.Errorf("the listener on %s stopped: %w", l.Addr(), err)
		}
	}()
	s.onClose(func(ctx context.Context) error {
		err := srv.Shutdown(ctx)
		if err != nil {
			err = errors.Join(fmt.Errorf("requests were still in progress: %w", err), srv.Close())
		}
		<-done
		return err
	})
}

// logWriter writes messages of net/http to the log at debug level. Any client can cause such messages, for example by a
// failed handshake.
type logWriter struct{ logger *slog.Logger }

func (w logWriter) Write(line []byte) (int, error) {
	w.logger.Debug("http server", "message", string(bytes.TrimSpace(line)))
	return len(line), nil
}

// reachable converts the address of a listener into an address that clients on this machine can use.
func reachable(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}
