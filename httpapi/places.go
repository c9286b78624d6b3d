package httpapi

import (
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/origin"
	"github.com/keyserver-operator/keyserver-operator/internal/quota"
)

// Defaults of the ceilings in Config.
const (
	DefaultMaxInFlight            = 1024
	DefaultMaxWaiting             = 1024
	DefaultMaxStreams             = 1024
	DefaultMaxStrangers           = 1024
	DefaultMaxStrangersPerAddress = 128

	DefaultMaxSpoolBytes           = 1 << 30
	DefaultMaxSpoolBytesPerSession = 64 << 20
)

// places are what requests hold while they are under way. One that has shown a
// session holds a place of that session (--max-requests-per-session) from then
// on, and one of the process once there is something to do: while its body
// arrives it takes nothing from others. Every other request is a stranger's.
type places struct {
	inFlight, waiting, streams atomic.Int64

	strangers *quota.Quota[netip.Prefix]
	// refused are strangers that are told that they are too many. They have as
	// many places again; whoever asks beyond those is told nothing.
	refused *quota.Quota[netip.Prefix]

	spool *quota.Quota[keyserver.ID] // bytes, by session
}

func newPlaces(c Config) *places {
	return &places{
		strangers: quota.New[netip.Prefix](int64(c.MaxStrangers), int64(c.MaxStrangersPerAddress)),
		refused:   quota.New[netip.Prefix](int64(c.MaxStrangers), int64(c.MaxStrangersPerAddress)),
		spool:     quota.New[keyserver.ID](c.MaxSpoolBytes, c.MaxSpoolBytesPerSession),
	}
}

// gauges show how full the ceilings are.
func (p *places) gauges() []prometheus.Collector {
	gauge := func(name, help string, value func() int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	return []prometheus.Collector{
		gauge("keyserver_http_requests_in_flight", "Requests at work, long polls and streamed messages included.", func() int64 {
			return p.inFlight.Load() + p.waiting.Load() + p.streams.Load()
		}),
		gauge("keyserver_http_requests_at_work", "Requests at work, without long polls and streamed messages (--max-requests).", p.inFlight.Load),
		gauge("keyserver_http_waiting", "Long polls that are held open (--max-waiting).", p.waiting.Load),
		gauge("keyserver_http_streams", "Messages that are read while they are worked on.", p.streams.Load),
		gauge("keyserver_http_strangers", "Requests under way for which no session was shown, or none yet.", p.strangers.Held),
		gauge("keyserver_http_spooled_bytes", "Bytes of messages that came before the name of their key and wait for it.", p.spool.Held),
	}
}

// enter takes a place among the requests at work. A request that holds a
// stranger's place, such as a login, gives that back at its end.
func (x *exchange) enter() error {
	p, most := x.api.places, x.api.Config
	switch {
	case x.route.Uncounted:
		return nil
	case x.route.Waits:
		return x.take(&p.waiting, most.MaxWaiting, "long polls")
	case x.route.streams:
		return x.take(&p.streams, most.MaxStreams, "messages under way")
	default:
		return x.take(&p.inFlight, most.MaxInFlight, "requests at work")
	}
}

func (x *exchange) take(held *atomic.Int64, most int, what string) error {
	if held.Add(1) > int64(most) {
		held.Add(-1)
		return fault.Temporary(fault.Overloaded, fault.ScopeProcess, time.Second,
			"the service has %d %s, which is the most it takes on; try again", most, what)
	}
	x.place = held
	return nil
}

// stranger takes a place among the requests that have shown no session. Where
// there is none, it says so to as many again and hangs up on the rest: even a
// refusal that nobody reads has to be held.
func (x *exchange) stranger() error {
	from := origin.Network(x.from)
	switch x.api.places.strangers.Take(from, 1) {
	case quota.Taken:
		x.among = x.api.places.strangers
		return nil
	case quota.FullAll, quota.FullEach:
	}
	if x.api.places.refused.Take(from, 1) != quota.Taken {
		x.code = fault.Overloaded
		panic(http.ErrAbortHandler)
	}
	x.among = x.api.places.refused
	return fault.Temporary(fault.Overloaded, fault.ScopeProcess, time.Second,
		"too many requests without a session are under way, in all or from this address; try again")
}

// leave gives back what the request holds.
func (x *exchange) leave() {
	if x.place != nil {
		x.place.Add(-1)
	}
	if x.among != nil {
		x.among.Return(origin.Network(x.from), 1)
	}
	if x.release != nil {
		x.release()
	}
}
