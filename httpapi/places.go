package httpapi

import (
	"context"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/clientaddr"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
)

// Defaults of the limits in Config.
const (
	DefaultMaxInFlight            = 1024
	DefaultMaxWaiting             = 1024
	DefaultMaxStreams             = 1024
	DefaultMaxConnections         = 4096
	DefaultMaxStrangers           = 1024
	DefaultMaxStrangersPerAddress = 128

	DefaultMaxSpoolBytes           = 1 << 30
	DefaultMaxSpoolBytesPerSession = 64 << 20

	// maxBodyBytes limits the request bodies in memory. The first routes.SmallBody bytes of each body do not count.
	// maxUnreadBytes limits the responses that clients have not read yet.
	maxBodyBytes   = 256 << 20
	maxUnreadBytes = 256 << 20

	// readPerCore is how many bytes of long bodies a principal may send per second and core while other principals are
	// active. Reading and parsing these bytes takes about a quarter of the cores.
	readPerCore = 16 << 20
	// readAtATime is how many bytes of a long body are read in one step while other principals are active. All waiting
	// requests of a principal continue at the same time. Together they may then read the bytes of a quarter of a
	// second.
	readAtATime = 16 << 10

	// leastPerCore is the lowest limit of requests of a principal per second and core while the cores are busy.
	leastPerCore = 600
	// strangerWeight divides leastPerCore for requests without a session, whose limit is per network.
	strangerWeight = 8

	// reserveShares is the number of principals that together fill the administrators' reserve. An administrator needs
	// few places. Any principal can use the reserve, for example to list its own sessions.
	reserveShares = 64
)

// places contains the limits of requests in progress; each request takes a place of a limit. A request with a session
// takes a place of that session (--max-requests-per-session). Before it starts its work, it also takes a place of the
// process, and returns that place before its response is written. While its body arrives, it has no place of the
// process. Every other request takes a place for requests without a session, which the code calls strangers.
//
// A principal may use a quarter of each limit, so that it cannot exclude other principals. Requests in sessions that it
// has created for other principals count for it, too.
type places struct {
	inFlight, waiting, streams *quota.Quota[keyserver.PrincipalRef]
	// administration limits administrative requests that get no place of inFlight (see administers).
	administration *quota.Quota[keyserver.PrincipalRef]
	// underWay counts all requests in sessions until their responses are written.
	underWay       *quota.Quota[keyserver.PrincipalRef]
	bodies, unread *quota.Quota[keyserver.PrincipalRef] // bytes

	// strangers limits requests without a session, or with a session that this process does not know. Such a request
	// has a place until its response is read, or until its session has been read from the database. If all places are
	// taken, a new request evicts the oldest request of the network with most places.
	strangers *quota.Crowd[netip.Prefix]
	// uncounted limits requests for routes that must always respond, such as health checks. These requests evict each
	// other in the same way as strangers, but strangers never evict them.
	uncounted *quota.Crowd[netip.Prefix]
	// refused limits the refusals of requests that got no place of strangers or uncounted. It has as many places as
	// strangers. Further requests are dropped without a response.
	refused *quota.Quota[netip.Prefix]
	dropped *rate.Limiter // above this rate of dropped requests, the reads of their clients are delayed

	spool      *quota.Quota[keyserver.ID]           // stored bytes of messages, by session
	spoolShare *quota.Quota[keyserver.PrincipalRef] // the same bytes, by principal

	restrained quota.Tally // requests rejected by restrain

	// turns makes requests of different principals alternate if they use a core for a long time. await limits the
	// requests that wait for a turn.
	turns *quota.Turns[keyserver.PrincipalRef]
	await *quota.Crowd[keyserver.PrincipalRef]
	// While the cores are busy, pace limits how fast requests in sessions begin, and floods limits how fast other
	// requests begin.
	pace   *quota.Pace[keyserver.PrincipalRef]
	floods *quota.Pace[netip.Prefix]
	// read counts the bytes of long bodies that are read while several principals are active.
	read *quota.Meter[keyserver.PrincipalRef]
}

func newPlaces(c Config) *places {
	shared := func(most int) *quota.Quota[keyserver.PrincipalRef] {
		return quota.New[keyserver.PrincipalRef](int64(most), quota.Share(int64(most)))
	}
	reserve := int64(quota.Share(c.MaxInFlight))
	return &places{
		inFlight: shared(c.MaxInFlight), waiting: shared(c.MaxWaiting), streams: shared(c.MaxStreams),
		administration: quota.New[keyserver.PrincipalRef](reserve, max(1, reserve/reserveShares)),
		bodies:         shared(maxBodyBytes), unread: shared(maxUnreadBytes),
		turns:      quota.NewTurns[keyserver.PrincipalRef](runtime.GOMAXPROCS(0), c.Clock),
		await:      quota.NewCrowd[keyserver.PrincipalRef](c.MaxInFlight, quota.Share(c.MaxInFlight), nil),
		pace:       quota.NewPace[keyserver.PrincipalRef](c.Clock, quota.Lag(), leastPerCore),
		floods:     quota.NewPace[netip.Prefix](c.Clock, quota.Lag(), leastPerCore/strangerWeight),
		read:       quota.NewMeter[keyserver.PrincipalRef](float64(runtime.GOMAXPROCS(0)*readPerCore), runtime.GOMAXPROCS(0)*readPerCore/4, c.Clock),
		underWay:   quota.New[keyserver.PrincipalRef](int64(mostUnderWay(c)), int64(quota.Share(c.MaxConnections))),
		strangers:  quota.NewCrowd(c.MaxStrangers, c.MaxStrangersPerAddress, clientaddr.Site),
		uncounted:  quota.NewCrowd(c.MaxStrangers, c.MaxStrangersPerAddress, clientaddr.Site),
		refused:    quota.New[netip.Prefix](int64(c.MaxStrangers), int64(c.MaxStrangersPerAddress)),
		dropped:    rate.NewLimiter(dropsPerSecond, dropsPerSecond),
		spool:      quota.New[keyserver.ID](c.MaxSpoolBytes, c.MaxSpoolBytesPerSession),
		spoolShare: quota.New[keyserver.PrincipalRef](c.MaxSpoolBytes, max(c.MaxSpoolBytesPerSession, quota.Share(c.MaxSpoolBytes))),
	}
}

// gauges returns metrics that show which part of each limit is in use.
func (p *places) gauges() []prometheus.Collector {
	gauge := func(name, help string, value func() int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	shown := slices.Concat(
		p.inFlight.Collectors("requests"), p.administration.Collectors("administration"), p.waiting.Collectors("waiting"),
		p.streams.Collectors("streams"), p.underWay.Collectors("busyConnections"),
		p.bodies.Collectors("bodyBytes"), p.unread.Collectors("unreadBytes"), p.spoolShare.Collectors("spoolBytes"),
		p.strangers.Collectors("strangers"), p.uncounted.Collectors("probes"), p.restrained.Collectors("refusals", nil),
		p.await.Collectors("turns"),
	)
	return append(shown,
		gauge("keyserver_http_requests_in_flight", "Requests in progress, including long polls and streamed messages.", func() int64 {
			return p.inFlight.Held() + p.administration.Held() + p.waiting.Held() + p.streams.Held()
		}),
		gauge("keyserver_http_requests_at_work", "Requests in progress, without long polls and streamed messages (--max-requests).", func() int64 {
			return p.inFlight.Held() + p.administration.Held()
		}),
		gauge("keyserver_http_paced", "Requests that wait because the cores are busy and their principal has reached the limit of requests per second.", p.pace.Waiting),
		gauge("keyserver_http_waiting", "Long polls that are held open (--max-waiting).", p.waiting.Held),
		gauge("keyserver_http_streams", "Messages that are processed while they are read.", p.streams.Held),
		gauge("keyserver_http_strangers", "Requests in progress without a session, or before their session is known.", func() int64 {
			return p.strangers.Held() + p.uncounted.Held()
		}),
		gauge("keyserver_http_body_bytes", "Bytes of request bodies in memory, beyond 64 KiB of each request.", p.bodies.Held),
		gauge("keyserver_http_unread_bytes", "Bytes of responses in sessions that clients have not read yet, plus 16 KiB for each response.", p.unread.Held),
		gauge("keyserver_http_spooled_bytes", "Stored bytes of messages that arrived before the name of their key.", p.spool.Held),
	)
}

// mostUnderWay returns the limit of requests in progress in sessions. It leaves a share of the connections for new
// connections.
func mostUnderWay(c Config) int { return max(1, c.MaxConnections-quota.Share(c.MaxConnections)) }

// count counts a request in a session until its response is written. Until then, new connections do not evict its
// connection. A principal may have as many such requests as a quarter of all connections.
func (x *exchange) count() error {
	from := x.api.places.underWay
	verdict := from.Take(x.payer(), 1)
	if verdict == quota.Taken {
		x.counted = true
		if x.api.Protect != nil {
			x.expose = x.api.Protect(x.r.Context())
		}
		return nil
	}
	x.w.Header()["Connection"] = []string{"close"}
	return noRoom(verdict, from, quota.Share(x.api.MaxConnections), mostUnderWay(x.api.Config), "open requests")
}

// restraint is the maximum time for which restrain delays a request. It is shorter than bodyTime.
const restraint = 2 * time.Second

// restrain delays a request if too many operations of its principal were refused. It rejects the request if the
// principal is still over the limit after the delay. While the request waits, it has no place of the process, and its
// body is not read. So a client that retries immediately has no advantage.
func (x *exchange) restrain() error {
	if x.api.Restrain == nil {
		return nil
	}
	err := x.api.Restrain(x.call.by)
	if err == nil {
		return nil
	}
	wait := restraint
	if f := fault.As(err); f != nil {
		wait = min(wait, f.RetryAfter)
	}
	if !x.pause(wait) && x.ctx.Err() != nil {
		return err
	}
	if err = x.api.Restrain(x.call.by); err != nil {
		x.api.places.restrained.Count(quota.FullEach)
	}
	return err
}

// yield delays a request in a session if its principal has reached the limit of requests per second. The limit applies
// only while the cores are busy. A request that waits has no place of the process, and its body is not read.
func (x *exchange) yield() error {
	x.api.places.floods.Crowd()
	waited, err := x.api.places.pace.Wait(x.ctx, x.payer())
	if waited {
		x.setDeadlines()
	}
	return err
}

// takeTurn waits for the turn of a long request, unless the request already has a turn. A request that waits has no
// place of the process.
func (x *exchange) takeTurn() error {
	if x.endTurn != nil || x.stored != nil || x.isStranger() {
		return nil
	}
	p := x.api.places
	p.turns.Worked(x.payer())
	if !x.route.long && x.bodyBytes == 0 {
		return nil
	}
	full := fault.Temporary(fault.Overloaded, fault.ScopeSession, time.Second,
		"too many long requests of the principal are waiting (lists, many items, or bodies over 64 KiB); try again")
	return p.await.Wait(x.ctx, x.payer(), full, func(ctx context.Context) (err error) {
		x.endTurn, err = p.turns.Enter(ctx, x.payer())
		return err
	})
}

// paceBody delays reading a long body if the principal has sent more bytes of long bodies than its share. It does not
// use a turn, because a slow client would block the turns of others. paceBody reports whether other principals are
// active.
func (x *exchange) paceBody() bool {
	p := x.api.places
	if p.turns.Worked(x.payer()); !p.turns.Crowded() {
		return false
	}
	if wait := p.read.Wait(x.payer(), 0); wait > 0 {
		x.pause(wait)
	}
	return true
}

// isStranger reports whether the request has only a place for requests without a session.
func (x *exchange) isStranger() bool {
	return x.route.Uncounted || x.member != nil && !x.route.Session
}

// enter takes a place of the process. A request with a place for requests without a session, such as a login, keeps
// that place until it ends.
func (x *exchange) enter() error {
	if x.isStranger() {
		return nil
	}
	if err := x.takeTurn(); err != nil {
		return err
	}
	p := x.api.places
	switch {
	case x.route.Waits:
		return x.take(p.waiting, x.api.MaxWaiting, "long polls")
	case x.route.Streams:
		return x.take(p.streams, x.api.MaxStreams, "streamed messages")
	}
	err := x.take(p.inFlight, x.api.MaxInFlight, "requests in progress")
	if err != nil && administers(x.route.Route) && p.administration.Take(x.payer(), 1) == quota.Taken {
		x.place, err = p.administration, nil
	}
	return err
}

// administers reports whether the route lists or ends sessions, reads or changes principals, or
// executes an approval.
func administers(r routes.Route) bool {
	about := r.Tag == "Sessions" || r.Tag == "Principals"
	return about && (r.Method != http.MethodGet || len(r.Operations) > 0) || r.Executes
}

func (x *exchange) take(from *quota.Quota[keyserver.PrincipalRef], most int, what string) error {
	verdict := from.Take(x.payer(), 1)
	if verdict == quota.Taken {
		x.place = from
		return nil
	}
	return noRoom(verdict, from, quota.Share(most), most, what)
}

// noRoom returns OVERLOADED. The scope is session if the principal has used its share and other principals could still
// get a place.
func noRoom(verdict quota.Verdict, from *quota.Quota[keyserver.PrincipalRef], share, most int, what string) error {
	if verdict == quota.FullEach && from.Held() < int64(most) {
		return fault.Temporary(fault.Overloaded, fault.ScopeSession, time.Second,
			"the principal has %d %s, its share of the limit; try again", share, what)
	}
	return fault.Temporary(fault.Overloaded, fault.ScopeProcess, time.Second,
		"the service has %d %s, the limit; try again", most, what)
}

// payer returns the principal for which places and bytes of the request count.
func (x *exchange) payer() keyserver.PrincipalRef { return x.call.by.Acting() }

const (
	// refusalPause is the delay before a request without a session is refused, so that a client that retries
	// immediately has no advantage. It is as long as the Retry-After of the refusal.
	refusalPause = time.Second
	// dropsPerSecond is the rate of dropped requests above which reads from their clients are delayed.
	dropsPerSecond = 1000
)

// TakePlace takes a place for requests without a session, unless the request already has a place or was refused. If
// there is no place, it waits for a pause and refuses the request. A refusal takes memory until the client reads it, so
// the number of such refusals is limited, too. If that limit is also reached, TakePlace drops the request. It
// implements session.Stranger.
func (x *exchange) TakePlace() error {
	if x.member != nil || x.refused {
		return nil
	}
	from := clientaddr.Network(x.from)
	crowd := x.api.places.strangers
	if x.route.Uncounted {
		crowd = x.api.places.uncounted
	}
	var verdict quota.Verdict
	if x.member, verdict = crowd.Join(from, x.hangUp); verdict == quota.Taken {
		return nil
	}
	if x.api.places.refused.Take(from, 1) != quota.Taken {
		x.code = fault.Overloaded
		x.slow()
		panic(http.ErrAbortHandler)
	}
	x.refused = true
	x.pause(refusalPause)
	return fault.Temporary(fault.Overloaded, fault.ScopeProcess, time.Second,
		"too many requests without a session from this address; try again")
}

// longestDelay is the longest delay of a read after a request without a session.
const longestDelay = time.Second

// delayNext delays the next read from a client that has sent a request without a session, if the client's network has
// reached the limit of requests per second. The request itself does not wait, because it would keep its place
// meanwhile.
func (x *exchange) delayNext() {
	if x.api.Delay == nil || x.overProxy() {
		return
	}
	if d := x.api.places.floods.Delay(clientaddr.Site(clientaddr.Network(x.from)), longestDelay); d > 0 {
		x.api.Delay(x.r.Context(), d)
	}
}

// overProxy reports whether the connection comes from a proxy. Such a connection may carry requests of several clients.
func (x *exchange) overProxy() bool {
	return x.api.Proxies.Trusts(clientaddr.OfRequest(x.r.RemoteAddr))
}

// slow delays the next read from a client whose request is dropped.
func (x *exchange) slow() {
	if x.overProxy() {
		return
	}
	if x.r.ProtoMajor == 1 {
		x.pause(refusalPause) // HTTP/1 closes the connection
		return
	}
	if x.api.Delay != nil && !x.api.places.dropped.AllowN(x.api.Clock(), 1) {
		x.api.Delay(x.r.Context(), refusalPause)
	}
}

// pause waits. It returns false if the request or the service ends first.
func (x *exchange) pause(d time.Duration) bool {
	held := time.NewTimer(d)
	defer held.Stop()
	select {
	case <-held.C:
		return true
	case <-x.ctx.Done():
	case <-x.api.draining.Done():
	}
	return false
}

// hangUp ends reading and writing for a request that a new request has evicted.
func (x *exchange) hangUp() {
	rc := http.NewResponseController(x.w)
	_ = rc.SetReadDeadline(longAgo)
	_ = rc.SetWriteDeadline(longAgo)
}

var longAgo = time.Unix(1, 0)

// leavePlace ends the turn of the request, and returns its place of the process. The request keeps its other places
// until the response is written.
func (x *exchange) leavePlace() {
	if x.endTurn != nil {
		x.endTurn()
		x.endTurn = nil
	}
	if x.place != nil {
		x.place.Return(x.payer(), 1)
		x.place = nil
	}
}

// leave returns all places and bytes of the request.
func (x *exchange) leave() {
	x.leavePlace()
	if x.member != nil {
		x.member.Leave()
		x.delayNext()
	}
	if x.refused {
		x.api.places.refused.Return(clientaddr.Network(x.from), 1)
		x.delayNext()
	}
	if x.expose != nil {
		x.expose()
	}
	if x.counted {
		x.api.places.underWay.Return(x.payer(), 1)
	}
	if x.bodyBytes > 0 {
		x.api.places.bodies.Return(x.payer(), x.bodyBytes)
	}
	if x.unreadBytes > 0 {
		x.api.places.unread.Return(x.payer(), x.unreadBytes)
	}
	if x.release != nil {
		x.release()
	}
}
