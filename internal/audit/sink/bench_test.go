package sink

import (
	"fmt"
	"io"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/rsyslog"
)

// BenchmarkDelivery measures how many waiting rows a sink delivers per second on the embedded database, from reading
// the rows to storing the position. It runs all receivers except rsyslog in this process; the OTLP receiver checks each
// row.
func BenchmarkDelivery(b *testing.B) {
	const rows = 20_000
	w := newTrail(b, sqlstore.Config{Dir: b.TempDir()}, newSigner(b))
	w.write(b, rows)
	web := newWeb(b)
	web.answer(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	for name, url := range map[string]func() string{
		"stdout": func() string { return "stdout:" },
		"https":  func() string { return web.url },
		"syslog": func() string { return rsyslog.Start(b, "ossl").URL },
		"otlp":   func() string { return newCollector(b, true).url },
	} {
		b.Run(name, func(b *testing.B) {
			at := target(b, url())
			var took, processor time.Duration
			for i := 0; b.Loop(); i++ {
				c := w.config(b)
				c.Out = NewStdout(io.Discard)
				at.Name = fmt.Sprint(b.Name(), i) // a new sink without delivered rows
				r := New(c, at)
				began, before := time.Now(), processorTime(b)
				for more := true; more; {
					var err error
					more, err = r.pass(b.Context())
					rig.Must(b, err)
				}
				took, processor = took+time.Since(began), processor+processorTime(b)-before
				r.hangUp()
			}
			b.ReportMetric(float64(b.N)*rows/took.Seconds(), "rows/s")
			b.ReportMetric(float64(processor.Microseconds())/float64(b.N)/rows, "cpu-µs/row")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	rig.Must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
