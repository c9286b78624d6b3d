package connection

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// Connections has the connection of each KeyServer. It owns the goroutines of the connections. As a runnable of the
// manager, it ends these goroutines when the manager ends, and waits for them.
type Connections struct {
	dial   Dial
	clock  clock.Clock
	timing Timing
	log    logr.Logger
	ids    map[string]func(schema.HexID) string

	ctx  context.Context //nolint:containedctx // the lifetime of the goroutines of Connections, not of a call
	quit context.CancelFunc
	wg   sync.WaitGroup

	mu        sync.Mutex
	byName    map[string]*Connection
	blocked   map[string]*Problem
	listeners []func(context.Context, Notice)
}

// NewConnections returns a Connections that has no connection yet.
func NewConnections(dial Dial, c clock.Clock, t Timing, log logr.Logger) *Connections {
	ctx, quit := context.WithCancel(context.Background())
	return &Connections{
		dial: dial, clock: c, timing: t, log: log,
		ids: map[string]func(schema.HexID) string{},
		ctx: ctx, quit: quit,
		byName: map[string]*Connection{}, blocked: map[string]*Problem{},
	}
}

// Start implements manager.Runnable.
func (c *Connections) Start(ctx context.Context) error {
	<-ctx.Done()
	c.Close()
	return nil
}

// Close ends every connection and waits for the end of their goroutines.
func (c *Connections) Close() {
	c.mu.Lock()
	c.quit()
	c.mu.Unlock()
	c.wg.Wait()
}

// SetIDFormat sets the function that formats ids of the change feed like the status of a kind's objects. Call it before
// Start.
func (c *Connections) SetIDFormat(kind string, spelling func(schema.HexID) string) {
	c.ids[kind] = spelling
}

// HasIDFormat reports whether SetIDFormat was called for a kind.
func (c *Connections) HasIDFormat(kind string) bool { return c.ids[kind] != nil }

// Listen adds a listener for notices. Call it before Start.
func (c *Connections) Listen(hear func(context.Context, Notice)) {
	c.listeners = append(c.listeners, hear)
}

// Notify sends a notice to all listeners.
func (c *Connections) Notify(ctx context.Context, n Notice) {
	for _, hear := range c.listeners {
		hear(ctx, n)
	}
}

// Login is the configuration of a connection.
type Login struct {
	Version         string // changes if any other field changes
	Administrator   Endpoint
	SecurityOfficer *Endpoint
}

// Ensure returns the connection of a KeyServer. If the configuration has changed, it creates a new connection.
func (c *Connections) Ensure(name string, l Login) (*Connection, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	have := c.byName[name]
	if have != nil && have.version == l.Version {
		return have, nil
	}
	if c.ctx.Err() != nil {
		return nil, c.ctx.Err()
	}
	conn := &Connection{
		Name: name, version: l.Version, credentialNames: credentials{administrator: l.Administrator.Credential},
		clock: c.clock, timing: c.timing, log: c.log.WithValues("keyServer", name),
		notify: c.Notify, ids: c.ids, done: make(chan struct{}), asked: make(chan struct{}, 1),
		listings: map[string]invalidator{}, memos: map[string]forgetter{}, writes: map[chan struct{}]struct{}{},
	}
	var err error
	if conn.Admin, err = c.dialObserved(conn, l.Administrator); err != nil {
		return nil, err
	}
	conn.Officer = conn.Admin
	if l.SecurityOfficer != nil {
		conn.credentialNames.officer = l.SecurityOfficer.Credential
		if conn.Officer, err = c.dialObserved(conn, *l.SecurityOfficer); err != nil {
			return nil, err
		}
	}
	c.end(name)
	delete(c.blocked, name)
	ctx, stop := context.WithCancel(c.ctx)
	conn.stop = stop
	conn.state.Problem = &Problem{
		Reason: v1beta1.ReasonProgressing, Transient: true,
		Message: fmt.Sprintf("connecting to KeyServer %q", name),
	}
	c.byName[name] = conn
	c.wg.Go(func() { conn.run(ctx) })
	return conn, nil
}

// dialObserved dials an API that counts its calls and closes the connection after a rejected login.
func (c *Connections) dialObserved(conn *Connection, e Endpoint) (API, error) {
	count := counting(conn.Name)
	e.Observe = func(route string, err error) {
		count(route, err)
		conn.tripOnRefusedLogin(err, e.Credential)
	}
	return c.dial(e)
}

// Block ends the connection of a KeyServer and records why no connection is possible.
func (c *Connections) Block(ctx context.Context, name string, p *Problem) {
	c.mu.Lock()
	was := c.blocked[name]
	had := c.end(name)
	c.blocked[name] = p
	c.mu.Unlock()
	if had || was == nil || was.Message != p.Message {
		c.Notify(ctx, Notice{KeyServer: name})
	}
}

// Remove ends the connection of a deleted KeyServer.
func (c *Connections) Remove(ctx context.Context, name string) {
	c.mu.Lock()
	had := c.end(name)
	_, blocked := c.blocked[name]
	delete(c.blocked, name)
	c.mu.Unlock()
	if had || blocked {
		c.Notify(ctx, Notice{KeyServer: name})
	}
}

// end stops a connection. It does not wait, because a call may be in progress.
func (c *Connections) end(name string) bool {
	have, ok := c.byName[name]
	if ok {
		have.stop()
		delete(c.byName, name)
	}
	return ok
}

// Any returns the connection of a KeyServer, even if the connection is closed, or nil if there is none.
func (c *Connections) Any(name string) *Connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byName[name]
}

// Get returns the connection of a KeyServer if it is open. Otherwise it returns the reason why it is not open.
func (c *Connections) Get(name string) (*Connection, *Problem) {
	c.mu.Lock()
	conn, why := c.byName[name], c.blocked[name]
	c.mu.Unlock()
	switch {
	case why != nil:
		return nil, NewProblem(v1beta1.ReasonDependencyNotReady, "KeyServer %q is not ready: %s", name, why.Message)
	case conn == nil:
		return nil, &Problem{Reason: v1beta1.ReasonProgressing, Transient: true, Message: fmt.Sprintf("connecting to KeyServer %q", name)}
	}
	s := conn.Status()
	switch {
	case s.Open:
		return conn, nil
	case s.Problem.Transient:
		return nil, s.Problem
	case s.Problem.Reason == v1beta1.ReasonKeyServerUnavailable:
		return nil, NewProblem(v1beta1.ReasonKeyServerUnavailable, "KeyServer %q does not respond: %s", name, s.Problem.Message)
	default:
		return nil, NewProblem(v1beta1.ReasonDependencyNotReady, "KeyServer %q is not ready: %s", name, s.Problem.Message)
	}
}
