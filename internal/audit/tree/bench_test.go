package tree

import (
	"log/slog"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
)

// BenchmarkTree adds 50,000 rows at a time to a tree, which is the number of rows in five seconds at 10,000 rows a
// second. leaf is the cost of computing the leaf of a row. hash is the cost of the row's own hash, for comparison.
func BenchmarkTree(b *testing.B) {
	const step = 50_000
	rows := (&memory{}).write(step)
	b.Run("hash", func(b *testing.B) {
		var scratch []byte
		for i := range b.N {
			_, scratch = audit.Sum(scratch, &rows[i%step])
		}
	})
	b.Run("leaf", func(b *testing.B) {
		recent := NewRecent()
		for i := range b.N {
			recent.Written(rows[i%step : i%step+1])
		}
	})
	for name, written := range map[string]bool{"written here": true, "read": false} {
		b.Run(name, func(b *testing.B) {
			pair, err := NewKey(zeros{}, "keys/audit/1")
			if err != nil {
				b.Fatal(err)
			}
			signer, err := ReadKey(pair)
			if err != nil {
				b.Fatal(err)
			}
			begin, err := Begin(signer, time.Now())
			if err != nil {
				b.Fatal(err)
			}
			store := &memory{tiles: map[place][]byte{}, head: begin}
			t := New(Config{
				Store: store, Signer: signer, Recent: NewRecent(), Interval: time.Hour, Clock: time.Now,
				Logger: slog.New(slog.DiscardHandler), Alarm: func(p string) { b.Error(p) },
			})
			for range b.N {
				b.StopTimer()
				more := store.write(step)
				if written {
					t.Recent.Written(more)
				}
				b.StartTimer()
				t.catchUp(b.Context())
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/step, "ns/row")
		})
	}
}

// zeros is a random source that returns only zeros.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
