package bench

import (
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig/rawhttp"
)

// load is a fixed number of persistent connections to one server. It uses as little CPU time as
// possible, because it runs on the server's cores.
type load struct{ conns []*rawhttp.Conn }

func dial(address string, conns int) (*load, error) {
	l := &load{}
	for range conns {
		c, err := rawhttp.Dial(address)
		if err != nil {
			return nil, errors.Join(err, l.close())
		}
		l.conns = append(l.conns, c)
	}
	return l, nil
}

func (l *load) close() error {
	var errs []error
	for _, c := range l.conns {
		if err := c.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// run makes n exchanges on all connections concurrently, and appends the duration of each.
func (l *load) run(n int, x rawhttp.Exchange, took []time.Duration) ([]time.Duration, error) {
	var left atomic.Int64
	left.Store(int64(n))
	times := make([][]time.Duration, len(l.conns))
	errs := make([]error, len(l.conns))
	var group sync.WaitGroup
	for i, c := range l.conns {
		group.Go(func() {
			for left.Add(-1) >= 0 && errs[i] == nil {
				start := time.Now()
				_, errs[i] = c.Do(x)
				times[i] = append(times[i], time.Since(start))
			}
		})
	}
	group.Wait()
	return append(took, slices.Concat(times...)...), errors.Join(errs...)
}

// quantile returns a quantile of sorted durations.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
