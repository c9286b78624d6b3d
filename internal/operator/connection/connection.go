package connection

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

const progressing = v1beta1.ReasonProgressing

// Timing has the pauses and time limits of a connection. Tests use shorter ones.
type Timing struct {
	ProbeMin time.Duration // first pause while the key server does not respond
	ProbeMax time.Duration // longest pause
	ReadyMax time.Duration // longest pause while the key server is not ready; short, because a readiness check is cheap
	LoginMax time.Duration // longest pause while the key server rejects the credentials
	FeedWait time.Duration // duration of one long poll, and the interval of recheck
	PollEach time.Duration // pause between probes if there is no feed
	LookEach time.Duration // pause between readiness checks while the connection is open
	RetryMin time.Duration // first pause after a failed write of one object
	RetryMax time.Duration // longest pause after failed writes
}

// DefaultTiming is the timing of the manager.
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

// FeedState says whether the change feed reports changes by other clients, and why not.
type FeedState struct {
	Following bool
	Reason    v1beta1.Reason
	Message   string
}

// State is the last known state of a key server.
type State struct {
	Open    bool
	Problem *Problem // why the connection is closed
	Version string
	Cursor  int64
	Feed    FeedState
}

// Notice reports a change of a key server to the reconcilers. An empty Kind means every kind.
type Notice struct {
	KeyServer string
	Kind      string
	IDs       map[string]bool // ids of the changed external objects; nil means every object
}

// invalidator is the part of Listing that does not depend on the row type.
type invalidator interface {
	invalidate()
	Changed(id, action string) bool
}

// forgetter is the part of Memo that does not depend on the value type.
type forgetter interface {
	invalidate()
	Changed(kind, id, action string) (whole string, news bool)
	anyChanged(kind string)
	recheck(ctx context.Context) (changed bool, err error)
}

// Connection is shared by all objects of one KeyServer. Its goroutine probes the key server, opens and closes the
// connection, and follows the change feed.
type Connection struct {
	Name            string
	version         string // of the configuration that created the connection
	Admin           API
	Officer         API // the identity that manages trust
	credentialNames credentials
	clock           clock.Clock
	timing          Timing
	log             logr.Logger
	notify          func(context.Context, Notice)
	// ids has, by kind, the function that formats an id of the change feed like an id in the status of the kind's objects.
	ids map[string]func(schema.HexID) string

	stop  context.CancelFunc
	done  chan struct{}
	asked chan struct{} // receives when a probe is requested now

	mu       sync.Mutex
	state    State
	listings map[string]invalidator
	memos    map[string]forgetter
	tripped  context.CancelFunc // stops following the feed
	writes   map[chan struct{}]struct{}
}

// Status returns the present state.
func (c *Connection) Status() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Write runs send, which sends a write. The processing of the change feed waits until send returns. So the manager has
// recorded its own changes when the feed reports them, and no object is reconciled because of them.
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

// awaitWrites waits at most 250 ms until the writes that are in progress now have ended.
func (c *Connection) awaitWrites(ctx context.Context) {
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

// Trip closes the connection because a call got no response, and starts a probe immediately. Until a probe succeeds, no
// other request is sent.
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

// Refresh discards every reading and starts a probe.
func (c *Connection) Refresh() {
	c.invalidateAll()
	select {
	case c.asked <- struct{}{}:
	default: // a probe is requested already
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tripped != nil {
		c.tripped()
	}
}

// Outdated invalidates one cached list and all cached single responses (Memo). Their next reader requests them again.
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

// run probes the key server and follows its change feed until ctx ends.
func (c *Connection) run(ctx context.Context) {
	defer close(c.done)
	pause := c.timing.ProbeMin
	for failures := 0; ctx.Err() == nil; {
		opened, err := c.open(ctx)
		if err == nil {
			pause, failures = c.timing.ProbeMin, 0
			err = c.followWhileReady(opened)
		}
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			continue // Trip or Refresh was called: probe again immediately
		}
		failures++
		c.shut(ctx, err, failures)
		c.waitOrProbe(ctx, pause/2+rand.N(pause/2+1), c.asked) //nolint:gosec // jitter, not a secret
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

// open probes the key server and opens the connection if the key server responds. The returned context ends at the next
// Trip.
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
	// The cached responses may have changed while the feed was not followed.
	c.invalidateAll()
	c.mu.Lock()
	c.state = State{Open: true, Version: version, Cursor: cursor, Feed: feed}
	c.mu.Unlock()
	c.log.Info("the key server responds", "version", version, "feed", feed.Following)
	c.notify(ctx, Notice{KeyServer: c.Name})
	return following, nil
}

// readinessTimeout is the time limit for a readiness check. A key server that is stopped or unreachable does not
// respond to the check.
const readinessTimeout = 5 * time.Second

// followWhileReady follows the change feed while the key server reports that it is ready. The readiness check is
// necessary, because a key server that is not ready may keep a long poll open.
func (c *Connection) followWhileReady(opened context.Context) error {
	ctx, leave := context.WithCancelCause(opened)
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		c.watchReadiness(ctx, leave)
	}()
	err := c.follow(ctx)
	leave(nil)
	<-looked
	if why := context.Cause(ctx); opened.Err() == nil && !errors.Is(why, context.Canceled) {
		return why
	}
	return err
}

// watchReadiness checks the readiness of the key server at intervals. It calls leave with the problem as soon as the
// key server is not ready.
func (c *Connection) watchReadiness(ctx context.Context, leave context.CancelCauseFunc) {
	for c.timing.LookEach > 0 && ctx.Err() == nil {
		c.sleep(ctx, c.timing.LookEach)
		if err := c.unready(ctx); err != nil {
			leave(err)
			return
		}
	}
}

// unready returns nil if the key server is ready, or the reason why it is not. A key server without a readiness check
// counts as ready.
func (c *Connection) unready(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, readinessTimeout)
	defer cancel()
	ready, err := c.Admin.GetReadiness(within)
	switch {
	case err == nil, client.IsUnsupported(err):
		return nil
	case ctx.Err() == nil && within.Err() != nil:
		return NewProblem(v1beta1.ReasonKeyServerUnavailable, "the key server did not respond to the readiness check within %s", readinessTimeout)
	default:
		return c.notReady(ctx, ready, err)
	}
}

// notReadyError reports that a readiness check failed and that no other request was sent.
type notReadyError struct{ error }

func (e notReadyError) Unwrap() error { return e.error }

// probe sends the only requests that are allowed while the connection is closed. It returns the version of the key
// server.
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
			return "", refused(err, c.credentialNames.officer)
		}
	}
	return v.Version, nil
}

// notReady returns the problem of a key server that is not ready. Its message names the first part that is not ready.
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

// shut closes the connection after a failed probe. It notifies the objects only at the second failure in a row: a
// notice causes a status write of each object, which a short restart does not justify. Later failures with the same
// reason do not change the message, so retries cause no status writes.
func (c *Connection) shut(ctx context.Context, err error, failures int) {
	p, other := AsProblem(ctx, refused(err, c.credentialNames.administrator))
	if p == nil {
		p = NewProblem(v1beta1.ReasonKeyServerUnavailable, "%s", other)
	}
	if p.Reason == v1beta1.ReasonProgressing {
		p.Reason = v1beta1.ReasonKeyServerUnavailable
	}
	c.mu.Lock()
	was := c.state
	c.state.Open = false
	if was.Open || was.Problem == nil || was.Problem.Transient || was.Problem.Reason != p.Reason {
		c.state.Problem = p
	}
	c.mu.Unlock()
	verbosity := 0
	if failures > 2 {
		verbosity = 1 // the second failure has logged it already
	}
	c.log.V(verbosity).Info("the key server does not respond", "reason", p.Reason, "cause", p.Message, "failures", failures)
	if failures <= 2 {
		c.notify(ctx, Notice{KeyServer: c.Name, IDs: onlyKeyServer(failures)})
	}
}

// onlyKeyServer limits the notice to the KeyServer object at the first failure.
func onlyKeyServer(failures int) map[string]bool {
	if failures == 1 {
		return map[string]bool{}
	}
	return nil
}

// credentials has the names of the logins' credentials, for messages.
type credentials struct{ administrator, officer string }

// refusedLogin reports whether err is a rejected login. Retries cannot succeed until a user changes the credentials,
// and for the key server each retry looks like a guess at the password.
func refusedLogin(err error) bool {
	code := client.CodeOf(err)
	var p *Problem
	if errors.As(err, &p) {
		code = p.Code
	}
	return code == "INVALID_CREDENTIALS" || code == "LOGIN_THROTTLED"
}

// refused converts the error of a rejected login to a problem that names the credential. Other errors and errors that
// name the credential already stay unchanged.
func refused(err error, credential string) error {
	var p *Problem
	if !refusedLogin(err) || errors.As(err, &p) || credential == "" {
		return err
	}
	m := meanings[client.CodeOf(err)]
	m.Code, m.Message = client.CodeOf(err), "the key server rejects "+credential+": "+StableMessage(err)
	return &m
}

// tripOnRefusedLogin closes the connection if a call could not log in. Otherwise a thousand objects would cause a
// thousand failed logins.
func (c *Connection) tripOnRefusedLogin(err error, credential string) {
	var p *Problem
	if refusedLogin(err) && errors.As(refused(err, credential), &p) {
		c.Trip(p)
	}
}

// sleep waits for d.
func (c *Connection) sleep(ctx context.Context, d time.Duration) { c.waitOrProbe(ctx, d, nil) }

// waitOrProbe waits for d, or until a probe is requested through the channel asked.
func (c *Connection) waitOrProbe(ctx context.Context, d time.Duration, asked <-chan struct{}) {
	timer := c.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-asked:
	case <-ctx.Done():
	}
}
