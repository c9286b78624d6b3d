package tree

import (
	"log/slog"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
)

// BenchmarkTree grows a tree by 50,000 rows at a time, as it does every five seconds at
// 10,000 rows a second. leaf is the cost of a row for the writer. hash is the cost of one
// hash of its bytes, which the writer paid before there was a tree.
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

// zeros is a source of keys for tests only.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
