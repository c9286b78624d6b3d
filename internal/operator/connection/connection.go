package connection

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

const progressing = v1alpha1.ReasonProgressing

// Timing is how patient a connection is. Tests are less patient.
type Timing struct {
	ProbeMin time.Duration // first pause while the service does not answer
	ProbeMax time.Duration // longest
	ReadyMax time.Duration // longest while it does not say that it is ready, which costs it nothing to be asked
	LoginMax time.Duration // longest while the service does not take the credentials
	FeedWait time.Duration // one long poll, and how often is asked what the feed does not tell
	PollEach time.Duration // between two probes where there is no feed
	LookEach time.Duration // between two looks whether the service is ready, while the gate is open
	RetryMin time.Duration // first pause after a failed write of one object
	RetryMax time.Duration // longest
}

// DefaultTiming is that of the manager.
var DefaultTiming = Timing{
	ProbeMin: 500 * time.Millisecond,
	ProbeMax: 15 * time.Second,
	ReadyMax: 1500 * time.Millisecond,
	LoginMax: 5 * time.Minute,
	FeedWait: 30 * time.Second,
	PollEach: 10 * time.Second,
	LookEach: 500 * time.Millisecond,
	RetryMin: time.Second,
	RetryMax: 5 * time.Minute,
}

// FeedState says how outside changes are noticed.
type FeedState struct {
	Following bool
	Reason    v1alpha1.Reason
	Message   string
}

// State is what is known of a service.
type State struct {
	Open    bool
	Problem *Problem // why the gate is shut
	Version string
	Cursor  int64
	Feed    FeedState
}

// Notice says that something may concern objects. An empty Kind means every
// kind.
type Notice struct {
	KeyServer string
	Kind      string
	IDs       map[string]bool // external ids; nil means every object
}

// invalidator is a listing of any row type.
type invalidator interface {
	invalidate()
	Changed(id, action string) bool
}

// forgetter is a memo of any answer.
type forgetter interface {
	invalidate()
	Changed(kind, id, action string) (whole string, news bool)
	anyChanged(kind string)
	recheck(ctx context.Context) (changed bool, err error)
}

// Connection is what all objects of one KeyServer share. Its one goroutine
// probes the service, opens and shuts the gate, and follows the change feed.
type Connection struct {
	Name    string
	version string // of the configuration it was made from
	Admin   API
	Officer API // trust is managed as this identity
	as      credentials
	clock   clock.Clock
	timing  Timing
	log     logr.Logger
	tell    func(context.Context, Notice)
	// ids spells an id of the feed as the kind's objects do.
	ids map[string]func(schema.HexID) string

	stop  context.CancelFunc
	done  chan struct{}
	asked chan struct{} // somebody wants to know now

	mu       sync.Mutex
	state    State
	listings map[string]invalidator
	memos    map[string]forgetter
	tripped  context.CancelFunc // ends the current following of the feed
	writes   map[chan struct{}]struct{}
}

// Status returns what is known now.
func (c *Connection) Status() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Write sends a write and lets the feed wait for its end, so that the feed
// finds own changes noted already and tells nobody about them.
func (c *Connection) Write(send func()) {
	done := make(chan struct{})
	c.mu.Lock()
	c.writes[done] = struct{}{}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.writes, done)
		c.mu.Unlock()
		close(done)
	}()
	send()
}

// ownWrites waits, for a moment, until the writes under way have ended.
func (c *Connection) ownWrites(ctx context.Context) {
	const moment = 250 * time.Millisecond
	c.mu.Lock()
	pending := make([]chan struct{}, 0, len(c.writes))
	for w := range c.writes {
		pending = append(pending, w)
	}
	c.mu.Unlock()
	if len(pending) == 0 {
		return
	}
	timer := c.clock.NewTimer(moment)
	defer timer.Stop()
	for _, w := range pending {
		select {
		case <-w:
		case <-timer.C():
			return
		case <-ctx.Done():
			return
		}
	}
}

// Trip shuts the gate because a call got no answer, and has the service probed
// at once. Nothing else is sent until the probe succeeds.
func (c *Connection) Trip(p *Problem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Open {
		c.state.Open, c.state.Problem = false, p
	}
	if c.tripped != nil {
		c.tripped()
	}
}

// Refresh forgets every reading and has the service probed.
func (c *Connection) Refresh() {
	c.invalidateAll()
	select {
	case c.asked <- struct{}{}:
	default: // it was asked already
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tripped != nil {
		c.tripped()
	}
}

// Outdated makes the next reader of a list read it anew.
func (c *Connection) Outdated(list string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l, ok := c.listings[list]; ok {
		l.invalidate()
	}
	for _, m := range c.memos {
		m.invalidate()
	}
}

func (c *Connection) invalidateAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.listings {
		l.invalidate()
	}
	for _, m := range c.memos {
		m.invalidate()
	}
}

// run is the connection's goroutine.
func (c *Connection) run(ctx context.Context) {
	defer close(c.done)
	pause := c.timing.ProbeMin
	for failures := 0; ctx.Err() == nil; {
		opened, err := c.open(ctx)
		if err == nil {
			pause, failures = c.timing.ProbeMin, 0
			err = c.attend(opened)
		}
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			continue // tripped or refreshed: probe again at once
		}
		failures++
		c.shut(ctx, err, failures)
		c.rest(ctx, pause/2+rand.N(pause/2+1), c.asked) //nolint:gosec // jitter, not a secret
		longest := c.timing.ProbeMax
		var waits notReadyError
		switch {
		case refusedLogin(err):
			longest = max(longest, c.timing.LoginMax)
		case errors.As(err, &waits):
			longest = min(longest, c.timing.ReadyMax)
		}
		pause = min(2*pause, longest)
	}
}

// open probes the service and, if it answers, opens the gate. The context it
// returns ends when the gate is tripped.
func (c *Connection) open(ctx context.Context) (context.Context, error) {
	following, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	if c.tripped != nil {
		c.tripped()
	}
	c.tripped = cancel
	c.mu.Unlock()

	version, err := c.probe(ctx)
	if err != nil {
		return nil, err
	}
	cursor, feed, err := c.catchUp(ctx)
	if err != nil {
		return nil, err
	}
	// Whatever was read before this moment may have changed while nobody listened.
	c.invalidateAll()
	c.mu.Lock()
	c.state = State{Open: true, Version: version, Cursor: cursor, Feed: feed}
	c.mu.Unlock()
	c.log.Info("the key server answers", "version", version, "feed", feed.Following)
	c.tell(ctx, Notice{KeyServer: c.Name})
	return following, nil
}

// lookPatience is how long a service that is up may take to say whether it is ready.
// One that was stopped, or that nobody reaches any more, says nothing at all.
const lookPatience = 5 * time.Second

// attend follows the changes of the service for as long as it says that it is ready: one
// that cannot do its work any more may still hold a long poll open.
func (c *Connection) attend(opened context.Context) error {
	ctx, leave := context.WithCancelCause(opened)
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		c.look(ctx, leave)
	}()
	err := c.follow(ctx)
	leave(nil)
	<-looked
	if why := context.Cause(ctx); opened.Err() == nil && !errors.Is(why, context.Canceled) {
		return why
	}
	return err
}

// look leaves with what is wrong, as soon as the service is not ready.
func (c *Connection) look(ctx context.Context, leave context.CancelCauseFunc) {
	for c.timing.LookEach > 0 && ctx.Err() == nil {
		c.sleep(ctx, c.timing.LookEach)
		if err := c.unready(ctx); err != nil {
			leave(err)
			return
		}
	}
}

// unready asks whether the service is ready, and answers why it is not. One that has no
// such question is.
func (c *Connection) unready(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	ready, err := c.Admin.GetReadiness(within)
	switch {
	case err == nil, client.IsUnsupported(err):
		return nil
	case ctx.Err() == nil && within.Err() != nil:
		return NewProblem(v1alpha1.ReasonKeyServerUnavailable, "the key server has not said within %s whether it is ready", lookPatience)
	default:
		return c.notReady(ctx, ready, err)
	}
}

// notReadyError says that the service was asked for nothing but whether it is ready.
type notReadyError struct{ error }

func (e notReadyError) Unwrap() error { return e.error }

// probe is the one thing that is sent while the gate is shut.
func (c *Connection) probe(ctx context.Context) (string, error) {
	if err := c.unready(ctx); err != nil {
		return "", notReadyError{err}
	}
	v, err := c.Admin.GetVersion(ctx)
	if err != nil {
		return "", err
	}
	if c.Officer != c.Admin {
		if _, err := c.Officer.GetVersion(ctx); err != nil {
			return "", refused(err, c.as.officer)
		}
	}
	return v.Version, nil
}

// notReady names the parts that are not ready, which the service knows best.
func (c *Connection) notReady(ctx context.Context, ready schema.Ready, err error) error {
	p, other := AsProblem(ctx, err)
	if p == nil {
		return other
	}
	for _, part := range ready.Parts {
		if !part.Ready {
			p.Message = "the key server is not ready: " + part.Part + ": " + part.Detail
			break
		}
	}
	return p
}

// shut closes the gate. The objects are told at the second failure in a row:
// a restart that takes a moment is not worth a write to each of them. The
// message of the first failure stays, so that retries cost no writes.
func (c *Connection) shut(ctx context.Context, err error, failures int) {
	p, other := AsProblem(ctx, refused(err, c.as.administrator))
	if p == nil {
		p = NewProblem(v1alpha1.ReasonKeyServerUnavailable, "%s", other)
	}
	if p.Reason == v1alpha1.ReasonProgressing {
		p.Reason = v1alpha1.ReasonKeyServerUnavailable
	}
	c.mu.Lock()
	was := c.state
	c.state.Open = false
	if was.Open || was.Problem == nil || was.Problem.Passing || was.Problem.Reason != p.Reason {
		c.state.Problem = p
	}
	c.mu.Unlock()
	verbosity := 0
	if failures > 2 {
		verbosity = 1 // said already
	}
	c.log.V(verbosity).Info("the key server does not answer", "reason", p.Reason, "cause", p.Message, "failures", failures)
	if failures <= 2 {
		c.tell(ctx, Notice{KeyServer: c.Name, IDs: onlyKeyServer(failures)})
	}
}

// onlyKeyServer addresses the KeyServer object alone at the first failure.
func onlyKeyServer(failures int) map[string]bool {
	if failures == 1 {
		return map[string]bool{}
	}
	return nil
}

// credentials name where those of the identities come from.
type credentials struct{ administrator, officer string }

// refusedLogin: trying again does not help before somebody has changed something,
// and looks like guessing.
func refusedLogin(err error) bool {
	code := client.CodeOf(err)
	var p *Problem
	if errors.As(err, &p) {
		code = p.Code
	}
	return code == "INVALID_CREDENTIALS" || code == "LOGIN_THROTTLED"
}

// refused says which credential it was that a login was refused with. Any other error
// stays as it is, and so does one that has been named.
func refused(err error, credential string) error {
	var p *Problem
	if !refusedLogin(err) || errors.As(err, &p) || credential == "" {
		return err
	}
	m := meanings[client.CodeOf(err)]
	m.Code, m.Message = client.CodeOf(err), "the key server does not take "+credential+": "+Plain(err)
	return &m
}

// heed shuts the gate where a call of anybody could not log in: each further one would
// be one more failed login, and a thousand objects would be a thousand.
func (c *Connection) heed(err error, credential string) {
	var p *Problem
	if refusedLogin(err) && errors.As(refused(err, credential), &p) {
		c.Trip(p)
	}
}

// sleep waits for d.
func (c *Connection) sleep(ctx context.Context, d time.Duration) { c.rest(ctx, d, nil) }

// rest sleeps, until somebody asks for a probe where that may be.
func (c *Connection) rest(ctx context.Context, d time.Duration, asked <-chan struct{}) {
	timer := c.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-asked:
	case <-ctx.Done():
	}
}
