package strangers

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// BenchmarkBeside measures an honest client before and during an attack: the ratio of the rates, and the ratio of the
// 99th percentiles of the response times. Attackers, server and client share the cores of this machine, so the ratios
// include the cost of sending the attack.
func BenchmarkBeside(b *testing.B) {
	held := func(connections, streams int, window uint32, method, path string, body []byte) func(testing.TB, *site) func() {
		return func(t testing.TB, s *site) func() {
			for range connections {
				a := connect(t, s, window)
				for range streams {
					if _, err := a.ask(method, path, body, body == nil); err != nil {
						break
					}
				}
				a.arrived()
			}
			return func() {}
		}
	}
	going := func(method, path string, body []byte, headers ...string) func(testing.TB, *site) func() {
		return func(t testing.TB, s *site) func() {
			ctx, stop := context.WithCancel(t.Context())
			for range 4 {
				a := connect(t, s, 1<<16)
				go func() {
					for ctx.Err() == nil {
						if _, err := a.ask(method, path, body, true, headers...); err != nil {
							return
						}
						time.Sleep(time.Millisecond) // a thousand requests per second on each connection
					}
				}()
			}
			return stop
		}
	}
	type attack struct {
		name  string
		begin func(testing.TB, *site) func()
	}
	attacks := []attack{
		{"nothing", func(testing.TB, *site) func() { return func() {} }},
		{"5000 bodies that do not arrive", held(40, 125, 1<<16, "POST", "/api/sessions", []byte("{"))},
		{"5000 answers that nobody reads", held(40, 125, 0, "GET", "/api/openapi.json", nil)},
		{"300 headers that do not arrive", func(t testing.TB, s *site) func() {
			for range 300 {
				slowly(t, s, "GET /api/health HTTP/1.1\r\nHost: ")
			}
			return func() {}
		}},
		{"guesses", going("POST", "/api/sessions", []byte(`{"method":"password","name":"honest","password":"a wrong one"}`), "content-type", "application/json")},
		{"sessions that are none", going("POST", "/api/crypto/hmac", []byte(`{}`), "authorization", "Bearer "+fmt.Sprintf("%043d", 0))},
		{"batches that are refused", func(t testing.TB, s *site) func() {
			var decided, putOff atomic.Int64
			return refusedBatches(t, s, s.User(t, "greedy", keyserver.RoleEncryptor), &decided, &putOff)
		}},
	}
	for _, one := range insiders {
		attacks = append(attacks, attack{one.name, func(t testing.TB, s *site) func() {
			return one.begin(t, s, s.User(t, "greedy", one.roles...))
		}})
	}
	for _, attack := range attacks {
		b.Run(attack.name, func(b *testing.B) {
			s := start(b)
			s.rate(b, 500) // warm up
			quiet, quiet99 := s.rate(b, 1500)
			end := attack.begin(b, s)
			defer end()
			b.ResetTimer()
			rate, p99 := s.rate(b, max(b.N, 1500))
			b.ReportMetric(rate/quiet, "of-quiet-rate")
			b.ReportMetric(float64(p99)/float64(quiet99), "x-quiet-p99")
			b.ReportMetric(rate, "req/s")
			b.ReportMetric(float64(s.memory(b)>>20), "MiB")
		})
	}
}
