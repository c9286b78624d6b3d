package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// hosts connects to one of several hosts: the host that accepts writes. It first tries only the favourite, the host
// that last accepted a connection, and then all hosts at the same time. The driver would try one host after another. A
// host that no longer responds would then delay each connection, and the promotion of a standby would go unnoticed.
type hosts struct {
	// favourite is the number, from 1, of the host that last accepted a connection. It is 0 if there is none, or if
	// that host accepted no connection within favouriteTimeout.
	favourite atomic.Int32
}

const (
	// favouriteTimeout is how long only the favourite is tried.
	favouriteTimeout = 250 * time.Millisecond
	// askAgain is the pause before another attempt with a host that failed.
	askAgain = 100 * time.Millisecond
)

// EachHost splits a configuration into one configuration for each host. The attempts with and without TLS for the same
// host stay in one configuration.
func EachHost(cfg *pgx.ConnConfig) []*pgx.ConnConfig {
	var all []*pgx.ConnConfig
	for _, f := range append([]*pgconn.FallbackConfig{{Host: cfg.Host, Port: cfg.Port, TLSConfig: cfg.TLSConfig}}, cfg.Fallbacks...) {
		if n := len(all); n > 0 && all[n-1].Host == f.Host && all[n-1].Port == f.Port {
			all[n-1].Fallbacks = append(all[n-1].Fallbacks, f)
			continue
		}
		one := cfg.Copy()
		one.Host, one.Port, one.TLSConfig, one.Fallbacks = f.Host, f.Port, f.TLSConfig, nil
		all = append(all, one)
	}
	return all
}

// connect opens a connection that belongs to no pool.
func (h *hosts) connect(ctx context.Context, cfg *pgx.ConnConfig) (*pgx.Conn, error) {
	var each []func(context.Context) (*pgx.Conn, error)
	for _, one := range EachHost(cfg) {
		each = append(each, func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, one.Copy()) })
	}
	return first(ctx, &h.favourite, each, func(c *pgx.Conn) { _ = c.Close(ctx) })
}

// hostsConnector opens the connections of a pool.
type hostsConnector struct {
	hosts *hosts
	each  []driver.Connector
}

func (h *hosts) connector(cfg *pgx.ConnConfig, options ...stdlib.OptionOpenDB) driver.Connector {
	c := hostsConnector{hosts: h}
	for _, one := range EachHost(cfg) {
		c.each = append(c.each, stdlib.GetConnector(*one, options...))
	}
	return c
}

// Connect implements driver.Connector.
func (c hostsConnector) Connect(ctx context.Context) (driver.Conn, error) {
	each := make([]func(context.Context) (driver.Conn, error), len(c.each))
	for i, one := range c.each {
		each[i] = one.Connect
	}
	return first(ctx, &c.hosts.favourite, each, func(c driver.Conn) { _ = c.Close() })
}

// Driver implements driver.Connector.
func (c hostsConnector) Driver() driver.Driver { return c.each[0].Driver() }

// first returns the first connection that succeeds. It fails when each host has failed once.
// It tries the favourite before the other hosts. It discards connections that succeed later.
func first[T any](ctx context.Context, favourite *atomic.Int32, each []func(context.Context) (T, error), discard func(T)) (T, error) {
	if len(each) == 1 {
		return each[0](ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	outcomes := make(chan hostOutcome[T])
	ask := func(host int) { retryHost(ctx, host, each[host], outcomes, discard) }
	liked := int(favourite.Load()) - 1
	others := sync.OnceFunc(func() {
		for host := range each {
			if host != liked {
				go ask(host)
			}
		}
	})
	if liked < 0 {
		others()
	} else {
		go ask(liked)
	}
	head := time.NewTimer(favouriteTimeout)
	defer head.Stop()
	failed := make([]error, len(each))
	missing := len(each)
	for {
		select {
		case <-ctx.Done():
			var none T
			return none, ctx.Err()
		case <-head.C:
			favourite.CompareAndSwap(int32(liked+1), 0) //nolint:gosec // a handful
			others()
		case o := <-outcomes:
			if o.err == nil {
				favourite.Store(int32(o.host + 1)) //nolint:gosec // a handful
				return o.conn, nil
			}
			others()
			if failed[o.host] == nil {
				missing--
			}
			if failed[o.host] = o.err; missing == 0 {
				return o.conn, fmt.Errorf("no host accepts the connection: %w", errors.Join(failed...))
			}
		}
	}
}

// hostOutcome is the result of one attempt to connect to a host.
type hostOutcome[T any] struct {
	host int
	conn T
	err  error
}

// retryHost connects to a host until a connection succeeds or ctx ends, and reports each outcome.
// It discards a connection that succeeds after the end of ctx.
func retryHost[T any](ctx context.Context, host int, connect func(context.Context) (T, error), outcomes chan<- hostOutcome[T], discard func(T)) {
	for ctx.Err() == nil {
		conn, err := connect(ctx)
		select {
		case outcomes <- hostOutcome[T]{host, conn, err}:
		case <-ctx.Done():
			if err == nil {
				discard(conn)
			}
		}
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(askAgain):
		}
	}
}

// connTracker tracks the network connections to the database. It can close a connection that receives no more data,
// even if a statement waits for a response on it.
type connTracker struct {
	tick  atomic.Int64 // counts queries and events of the follower
	epoch atomic.Int64 // counts how often all connections became outdated (sessionSettings)
	mu    sync.Mutex
	open  map[*trackedConn]struct{}
}

// trackedConn is a network connection that a connTracker tracks.
type trackedConn struct {
	net.Conn
	of       *connTracker
	epoch    int64        // epoch in which the connection was opened
	lastRead atomic.Int64 // the tick at which data last arrived
}

// through wraps a dial function, so that the connections that it opens are tracked.
func (l *connTracker) through(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		era := l.epoch.Load() // read before the session gets its settings, so era is never newer than these settings
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := &trackedConn{Conn: conn, of: l, epoch: era}
		c.lastRead.Store(l.tick.Load())
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.open == nil {
			l.open = map[*trackedConn]struct{}{}
		}
		l.open[c] = struct{}{}
		return c, nil
	}
}

// Read records that data arrived.
func (c *trackedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.lastRead.Store(c.of.tick.Load())
	}
	return n, err
}

// Close closes the connection and stops tracking it.
func (c *trackedConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// outdated reports whether a connection was opened in an earlier epoch.
func (l *connTracker) outdated(conn net.Conn) bool {
	if secured, ok := conn.(interface{ NetConn() net.Conn }); ok { // conn uses TLS
		conn = secured.NetConn()
	}
	c, ok := conn.(*trackedConn)
	return ok && c.epoch < l.epoch.Load()
}

// next increments the tick and returns it.
func (l *connTracker) next() int64 { return l.tick.Add(1) }

// closeSilent closes the connections that have received no data since a tick, and returns their
// number.
func (l *connTracker) closeSilent(moment int64) int {
	var silent []*trackedConn
	l.mu.Lock()
	for c := range l.open {
		if c.lastRead.Load() < moment {
			silent = append(silent, c)
		}
	}
	l.mu.Unlock()
	for _, c := range silent {
		_ = c.Close() // a goroutine that reads from the connection gets an error
	}
	return len(silent)
}
