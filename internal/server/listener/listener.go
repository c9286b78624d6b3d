// Package listener limits the connections of a process to the number of files that it may open, reports connections
// that it cannot accept, and closes HTTP/2 connections of abusive clients.
package listener

import (
	"errors"
	"log/slog"
	"math"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

const (
	// sayEvery is the minimum time between two log messages about failed accepts or closed connections. All of them are
	// counted.
	sayEvery = time.Minute
	// mostProbes is the maximum number of connections of a listener for probes or metrics.
	mostProbes = 64
	// share is a divisor: a listener for probes or metrics may use at most 1/share of all files.
	share = 8
)

// Files returns how many files the process may have open (RLIMIT_NOFILE). It returns 0 if there is no limit or
// the limit is unknown.
func Files() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > math.MaxInt32 {
		return 0
	}
	return int(limit.Cur)
}

// Fit returns how many connections the limit of open files allows; others is the number of files for other purposes. If
// the result is less than wanted, Fit logs a warning. by is the name of the setting in the warning.
func Fit(logger *slog.Logger, by string, wanted, others int) int {
	files := Files()
	return fit(logger, by, wanted, max(files-others, files/4, 1), files)
}

func fit(logger *slog.Logger, by string, wanted, fits, files int) int {
	if files == 0 || wanted <= fits {
		return wanted
	}
	logger.Warn("the limit of open files (RLIMIT_NOFILE, ulimit -n) is too low for the configured connections, so fewer are accepted; raise the limit, or configure fewer connections",
		"by", by, "connections", wanted, "accepted", fits, "limit", files)
	return fits
}

// Accepts counts and logs connections that cannot be accepted, for example because the process has too many open files.
// It is a Prometheus counter.
type Accepts struct {
	prometheus.Counter
	logger *slog.Logger
	say    rate.Sometimes
}

// NewAccepts returns a counter with the metric name name.
func NewAccepts(name string, logger *slog.Logger) *Accepts {
	return &Accepts{
		Counter: prometheus.NewCounter(prometheus.CounterOpts{
			Name: name, Help: "Connections that could not be accepted, for instance because too many files were open.",
		}),
		logger: logger, say: rate.Sometimes{First: 1, Interval: sayEvery},
	}
}

// Watch returns a listener that reports failed accepts of l.
func (a *Accepts) Watch(l net.Listener) net.Listener { return &watched{l, a} }

// Probes returns a listener for probes or metrics that reports failed accepts and limits connections.
func (a *Accepts) Probes(l net.Listener) net.Listener {
	files := Files()
	return netutil.LimitListener(a.Watch(l), fit(a.logger, l.Addr().String(), mostProbes, max(files/share, 1), files))
}

type watched struct {
	net.Listener
	accepts *Accepts
}

func (w *watched) Accept() (net.Conn, error) {
	conn, err := w.Listener.Accept()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		w.accepts.Inc()
		w.accepts.say.Do(func() {
			w.accepts.logger.Error("cannot accept connections", "address", w.Addr().String(), "error", err)
		})
	}
	return conn, err
}
