package bench

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig/rawhttp"
)

// BenchmarkLines compares operations on key lineages with hmac in one run, by the CPU time of the
// server: mac, verify by key and by lineage, a batch of 100 against 100 calls, and encrypting 1 KiB.
func BenchmarkLines(b *testing.B) {
	s := startService(b, false)
	z := sizes[1]
	text := base64.StdEncoding.EncodeToString(z.message())
	var made struct{ TTag, MAC string }
	s.call(b, "/api/keys", map[string]string{"algorithm": "AES-256"}, &made)
	aes := made.TTag
	s.call(b, "/api/crypto/mac", map[string]string{"lineage": s.link, "data": text}, &made)
	item := fmt.Sprintf(`{"lineage":%q,"data":%q}`, s.link, text)
	const (
		batch = 100
		calls = 6000 // per operation
	)
	ask := func(path, format string, args ...any) rawhttp.Exchange {
		return rawhttp.Exchange{Request: rawhttp.Post("/api/crypto/"+path, s.token, fmt.Appendf(nil, format, args...))}
	}
	ways := []struct {
		name string
		rawhttp.Exchange
		each int // the number of operations in one request
		aim  float64
	}{
		{"hmac", ask("hmac", `{"hiddenLink":%q,"data":%q}`, s.link, text), 1, 1},
		{"mac", ask("mac", `{"lineage":%q,"data":%q}`, s.link, text), 1, 1.05},
		{"verify", ask("mac/verify", `{"ttag":%q,"mac":%q,"data":%q}`, s.link, made.MAC, text), 1, 1.05},
		{"verify-line", ask("mac/verify", `{"lineage":%q,"mac":%q,"data":%q}`, s.link, made.MAC, text), 1, 1.05},
		{"batch", ask("mac/batch", `{"items":[%s]}`, strings.Join(slices.Repeat([]string{item}, batch), ",")), batch, 0.25},
		{"encrypt", ask("encrypt", `{"ttag":%q,"data":%q}`, aes, text), 1, 0},
	}
	for _, conns := range connections[:2] {
		b.Run(fmt.Sprintf("%s/conns=%d", z.name, conns), func(b *testing.B) {
			targets := make([]*target, len(ways))
			for i, way := range ways {
				targets[i] = newTarget(b, s.server.Address, s.server.PID(), conns, way.Exchange)
				defer func() { _ = targets[i].load.close() }() // the measurement is done
				targets[i].took = targets[i].took[:0]
			}
			for b.Loop() {
				for range parts {
					for i, way := range ways {
						targets[i].work(b, calls/parts/way.each)
					}
				}
			}
			base := float64(targets[0].cpuPer())
			for i, way := range ways {
				ratio := float64(targets[i].cpuPer()) / float64(way.each) / base
				b.ReportMetric(ratio, way.name+"/hmac")
				b.ReportMetric(0, "ns/op")
				if way.aim > 0 {
					fmt.Printf("%s, %d connections: %s costs %.3f of hmac, at most %.2f: %s\n", z.name, conns, way.name, ratio, way.aim, verdict(ratio <= way.aim))
				} else {
					fmt.Printf("%s, %d connections: %s costs %.3f of hmac\n", z.name, conns, way.name, ratio)
				}
			}
		})
	}
}
