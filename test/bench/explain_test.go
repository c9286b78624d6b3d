package bench

import (
	"fmt"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig/rawhttp"
)

// BenchmarkExplain compares the CPU time of explaining an operation with that of executing it:
// authorizing the use of a key.
func BenchmarkExplain(b *testing.B) {
	s := startService(b, false)
	var made struct{ Principal struct{ ID string } }
	s.call(b, "/api/principals/password", map[string]any{"name": "stranger", "password": "a stranger's password", "roleIds": []string{}}, &made)
	authorize := rawhttp.Exchange{Request: rawhttp.Post("/api/keys/authorize", s.token, fmt.Appendf(nil, `{"ttag":%q}`, s.link))}
	own := fmt.Sprintf(`{"operation":"authorizeKey","hiddenLink":%q`, s.link)
	for _, asked := range []struct{ name, path, body string }{
		{"Allowed", "/api/explain", own + `}`},
		{"Refused", "/api/explain", own + fmt.Sprintf(`,"principalId":%q}`, made.Principal.ID)}, // with the change that would allow it
		{"AuthZEN", "/access/v1/evaluation", fmt.Sprintf(`{"subject":{"type":"principal","id":%q},"action":{"name":"authorizeKey"},"resource":{"type":"key","id":%q}}`,
			made.Principal.ID, s.link)},
	} {
		b.Run(asked.name, func(b *testing.B) {
			of := func(x rawhttp.Exchange) *target { return newTarget(b, s.server.Address, s.server.PID(), 1, x) }
			done, explained := of(authorize), of(rawhttp.Exchange{Request: rawhttp.Post(asked.path, s.token, []byte(asked.body))})
			defer func() { _, _ = done.load.close(), explained.load.close() }() // the measurement is done
			each := max(b.N/parts, 100)
			for n := 0; n < b.N; n += each {
				done.work(b, each)
				explained.work(b, each)
			}
			b.ReportMetric(0, "ns/op") // the sum of both times has no meaning
			b.ReportMetric(float64(done.cpuPer().Nanoseconds()), "cpu-ns/authorize")
			b.ReportMetric(float64(explained.cpuPer().Nanoseconds()), "cpu-ns/explain")
			b.ReportMetric(float64(explained.cpuPer())/float64(done.cpuPer()), "explain/authorize")
		})
	}
}
