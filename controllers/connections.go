package controllers

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// connections holds the connection of each KeyServer. It is a runnable of the
// manager: it owns the connections' goroutines and waits for them at the end.
type connections struct {
	dial   Dial
	clock  clock.Clock
	timing timing
	log    logr.Logger
	ids    map[string]func(schema.HexID) string

	ctx  context.Context //nolint:containedctx // the life of the goroutines that this owns, not a call's
	quit context.CancelFunc
	wg   sync.WaitGroup

	mu        sync.Mutex
	byName    map[string]*connection
	blocked   map[string]*problem
	listeners []func(context.Context, notice)
}

func newConnections(dial Dial, c clock.Clock, t timing, log logr.Logger) *connections {
	ctx, quit := context.WithCancel(context.Background())
	return &connections{
		dial: dial, clock: c, timing: t, log: log,
		ids: map[string]func(schema.HexID) string{},
		ctx: ctx, quit: quit,
		byName: map[string]*connection{}, blocked: map[string]*problem{},
	}
}

// Start implements manager.Runnable.
func (c *connections) Start(ctx context.Context) error {
	<-ctx.Done()
	c.close()
	return nil
}

// close ends every connection and waits for it.
func (c *connections) close() {
	c.mu.Lock()
	c.quit()
	c.mu.Unlock()
	c.wg.Wait()
}

// listen registers who is told of notices. It is called before the start.
func (c *connections) listen(hear func(context.Context, notice)) {
	c.listeners = append(c.listeners, hear)
}

func (c *connections) tell(ctx context.Context, n notice) {
	for _, hear := range c.listeners {
		hear(ctx, n)
	}
}

// login is the configuration of a connection.
type login struct {
	Version         string // changes whenever anything below does
	Administrator   Endpoint
	SecurityOfficer *Endpoint
}

// ensure makes the KeyServer's connection, anew if its configuration changed.
func (c *connections) ensure(name string, l login) (*connection, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	have := c.byName[name]
	if have != nil && have.version == l.Version {
		return have, nil
	}
	if c.ctx.Err() != nil {
		return nil, c.ctx.Err()
	}
	admin, err := c.dialCounted(name, l.Administrator)
	if err != nil {
		return nil, err
	}
	officer := admin
	if l.SecurityOfficer != nil {
		if officer, err = c.dialCounted(name, *l.SecurityOfficer); err != nil {
			return nil, err
		}
	}
	c.end(name)
	delete(c.blocked, name)
	ctx, stop := context.WithCancel(c.ctx)
	conn := &connection{
		name: name, version: l.Version, admin: admin, officer: officer,
		clock: c.clock, timing: c.timing, log: c.log.WithValues("keyServer", name),
		tell: c.tell, ids: c.ids, stop: stop, done: make(chan struct{}),
		listings: map[string]invalidator{}, memos: map[string]forgetter{}, writes: map[chan struct{}]struct{}{},
	}
	conn.state.Problem = &problem{
		Reason: v1alpha1.ReasonProgressing, Passing: true,
		Message: fmt.Sprintf("connecting to KeyServer %q", name),
	}
	c.byName[name] = conn
	c.wg.Go(func() { conn.run(ctx) })
	return conn, nil
}

func (c *connections) dialCounted(name string, e Endpoint) (API, error) {
	api, err := c.dial(e)
	if err != nil {
		return nil, err
	}
	// A pointer, so that two identities are never mistaken for one.
	return &counted{API: api, requests: requestsOf(name)}, nil
}

// block ends the KeyServer's connection because it cannot be had, and says why.
func (c *connections) block(ctx context.Context, name string, p *problem) {
	c.mu.Lock()
	was := c.blocked[name]
	had := c.end(name)
	c.blocked[name] = p
	c.mu.Unlock()
	if had || was == nil || was.Message != p.Message {
		c.tell(ctx, notice{KeyServer: name})
	}
}

// remove forgets a KeyServer that is gone.
func (c *connections) remove(ctx context.Context, name string) {
	c.mu.Lock()
	had := c.end(name)
	_, blocked := c.blocked[name]
	delete(c.blocked, name)
	c.mu.Unlock()
	if had || blocked {
		c.tell(ctx, notice{KeyServer: name})
	}
}

// end stops a connection without waiting: a call may be under way.
func (c *connections) end(name string) bool {
	have, ok := c.byName[name]
	if ok {
		have.stop()
		delete(c.byName, name)
	}
	return ok
}

// any returns the connection of a KeyServer whether its gate is open or not,
// nil if there is none.
func (c *connections) any(name string) *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byName[name]
}

// get returns the connection of a KeyServer if its gate is open, and otherwise
// why it is not.
func (c *connections) get(name string) (*connection, *problem) {
	c.mu.Lock()
	conn, why := c.byName[name], c.blocked[name]
	c.mu.Unlock()
	switch {
	case why != nil:
		return nil, newProblem(v1alpha1.ReasonDependencyNotReady, "KeyServer %q is not ready: %s", name, why.Message)
	case conn == nil:
		return nil, &problem{Reason: v1alpha1.ReasonProgressing, Passing: true, Message: fmt.Sprintf("connecting to KeyServer %q", name)}
	}
	s := conn.status()
	switch {
	case s.Open:
		return conn, nil
	case s.Problem.Passing:
		return nil, s.Problem
	case s.Problem.Reason == v1alpha1.ReasonKeyServerUnavailable:
		return nil, newProblem(v1alpha1.ReasonKeyServerUnavailable, "KeyServer %q does not answer: %s", name, s.Problem.Message)
	default:
		return nil, newProblem(v1alpha1.ReasonDependencyNotReady, "KeyServer %q is not ready: %s", name, s.Problem.Message)
	}
}
