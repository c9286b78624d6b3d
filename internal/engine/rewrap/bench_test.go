package rewrap_test

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/rewrap"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// benchKeys is the number of keys that a benchmark rewraps.
const benchKeys = 20_000

func fill(b *testing.B, r replica, n int) {
	b.Helper()
	for from := 0; from < n; from += 1000 {
		must(b, r.store.Update(b.Context(), func(tx *sqlstore.Tx) error {
			for i := range 1000 {
				if err := r.mint(b.Context(), tx, uint64(1_000_000+from+i)); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

// BenchmarkRewrap measures the number of rewrapped keys per second of processor time and of clock time, including one
// read of all rows. The worker makes no pauses here. In a server it uses a twentieth of the time.
func BenchmarkRewrap(b *testing.B) {
	w := newWorld(b, sqlstore.Config{Dir: b.TempDir()}, nil)
	fill(b, w.replica, benchKeys)
	var clock, processor time.Duration
	for b.Loop() {
		_, err := w.replica.ring.Rotate(b.Context())
		must(b, err)
		ctx, cancel := context.WithCancel(b.Context())
		began, before := time.Now(), processorTime(b)
		ended := make(chan struct{})
		go func() { defer close(ended); w.replica.worker().Run(ctx) }()
		for retiring := true; retiring; _, retiring = w.replica.ring.Retiring() {
			time.Sleep(5 * time.Millisecond)
		}
		clock, processor = clock+time.Since(began), processor+processorTime(b)-before
		cancel()
		<-ended
	}
	b.ReportMetric(float64(b.N*(benchKeys+keys))/clock.Seconds(), "keys/s")
	b.ReportMetric(float64(b.N*(benchKeys+keys))/processor.Seconds(), "keys/cpu-s")
	b.ReportMetric(0, "ns/op")
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkHMACBeside measures the rate of HMACs during a rewrap, relative to the rate without a rewrap. It measures
// both rates alternately.
func BenchmarkHMACBeside(b *testing.B) {
	f := enginetest.New(b, sqlstore.Config{Dir: b.TempDir()})
	r := replica{f.Store, f.Keyring, f.Prepared.System}
	fill(b, r, benchKeys)
	key, err := f.MintKey(b.Context(), f.Admin, keyserver.NewKey{Algorithm: keyserver.HMACSHA384})
	must(b, err)
	var alone, beside atomic.Int64
	count := func(n *atomic.Int64) {
		end := time.Now().Add(3 * time.Second)
		var group sync.WaitGroup
		for range 16 {
			group.Go(func() {
				for time.Now().Before(end) {
					if _, err := f.HMAC(context.Background(), f.Admin, keyserver.HMACRequest{Link: key.Link, Message: bytes.NewReader(make([]byte, 64))}); err != nil {
						b.Error(err)
						return
					}
					n.Add(1)
				}
			})
		}
		group.Wait()
	}
	worker := rewrap.New(rewrap.Config{Store: f.Store, Keyring: f.Keyring, System: f.Prepared.System})
	for b.Loop() {
		count(&alone)
		if _, retiring := f.Keyring.Retiring(); !retiring {
			_, err := f.Keyring.Rotate(b.Context())
			must(b, err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); worker.Run(ctx) }()
		count(&beside)
		cancel()
		<-ended
	}
	b.ReportMetric(float64(beside.Load())/float64(alone.Load()), "beside/alone")
	b.ReportMetric(0, "ns/op")
}
