package bench

import (
	"fmt"
	"testing"

	"filippo.io/age"

	"github.com/keyserver-operator/keyserver-operator/test/program"
)

// BenchmarkReplicate sets the HMACs of a key server that is replicated to a directory
// against those of one that is not, measured in turn: their rate, and the CPU of a request.
func BenchmarkReplicate(b *testing.B) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		b.Fatal(err)
	}
	binary, err := program.Build(false)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = binary.Remove() })
	alone := startProcess(b, binary, "--log-level", "error")
	replicated := startProcess(b, binary, "--log-level", "error", "--replicate-to", b.TempDir(), "--replicate-recipient", identity.Recipient().String())
	for _, conns := range []int{1, 16} {
		b.Run(fmt.Sprintf("hmac/conns=%d", conns), func(b *testing.B) {
			var targets []*target
			for _, s := range []*service{alone, replicated} {
				x, err := s.hmac(sizes[0])
				if err != nil {
					b.Fatal(err)
				}
				t := newTarget(b, s.server.Address, s.server.PID(), conns, x)
				defer t.load.close() //nolint:errcheck // measured already
				targets = append(targets, t)
			}
			n := max(b.N/parts, 1000) // so that several segments are written meanwhile
			for range parts {
				for _, t := range targets {
					t.work(b, n)
				}
			}
			b.ReportMetric(100*targets[1].rate()/targets[0].rate(), "%_of_alone")
			b.ReportMetric(100*targets[1].cpu.Seconds()/targets[0].cpu.Seconds(), "%_of_CPU")
		})
	}
}
