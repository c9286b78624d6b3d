package audit_test

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest/migrated"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// BenchmarkWriter writes rows from several callers that each wait for their commit. cpu-ns/row is the CPU time of the
// entire process, including system calls. x-floor is the speed relative to one transaction per row, measured in the
// same run with the same callers.
func BenchmarkWriter(b *testing.B) {
	databases := map[string]func(testing.TB) sqlstore.Config{
		"sqlite":   func(t testing.TB) sqlstore.Config { return sqlstore.Config{Dir: t.TempDir()} },
		"postgres": func(t testing.TB) sqlstore.Config { return sqlstore.Config{URL: migrated.Database(t)} },
	}
	for _, name := range []string{"sqlite", "postgres"} {
		for _, callers := range []int{1, 16, 64, 256} {
			b.Run(fmt.Sprintf("%s/waiters=%d", name, callers), func(b *testing.B) {
				store, err := sqlstore.Open(b.Context(), databases[name](b))
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { closeIt(b, store) })
				const floorRows = 2000
				began := time.Now()
				write(b, store, audit.Options{Batch: 1}, callers, floorRows)
				floor := floorRows / time.Since(began).Seconds()

				b.ReportAllocs()
				cpu := cpuTime(b)
				b.ResetTimer()
				write(b, store, audit.Options{}, callers, b.N)
				b.StopTimer()
				rate := float64(b.N) / b.Elapsed().Seconds()
				b.ReportMetric(rate, "rows/s")
				b.ReportMetric(rate/floor, "x-floor")
				b.ReportMetric(float64((cpuTime(b)-cpu).Nanoseconds())/float64(b.N), "cpu-ns/row")
			})
		}
	}
}

func write(b *testing.B, store audit.Store, options audit.Options, callers, rows int) {
	w, err := audit.NewWriter(b.Context(), store, options)
	if err != nil {
		b.Fatal(err)
	}
	defer closeIt(b, w)
	entry := keyserver.AuditEntry{
		Operation: keyserver.OpHMAC.Key, Outcome: keyserver.Allowed,
		Principal: keyserver.PrincipalRef{System: 1, ID: values.IDFromUint64(7)},
		Object:    "AAAAAQAAAAAAAAAH", Kind: keyserver.PasswordSession, RequestID: "0123456789abcdef",
	}
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for n := i; n < rows; n += callers {
				if err := w.Write(context.Background(), entry); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func closeIt(t testing.TB, c interface{ Close() error }) {
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func cpuTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
