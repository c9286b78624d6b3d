// Package bench measures the program as it runs: a separate process, real HTTPS, a session, and an audit row that is
// durable before each response. It reports the CPU time of the server per request, which other work on the machine
// distorts least. It compares this time with floors (the necessary work), measured alternately: a bare JSON echo over
// the same TLS, the bare HMAC, and reading the body.
package bench

import (
	"crypto/hmac"
	"crypto/sha512"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig/rawhttp"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Getenv(peerVariable) != "" {
		if err := servePeer(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	code := m.Run()
	printTable(os.Stdout)
	printForwarded(os.Stdout)
	return code
}

// connections are the numbers of concurrent callers.
var connections = []int{1, 16, 64}

// maxEcho is the largest message for the echo server, which keeps several copies of a body in memory.
const maxEcho = 64 << 10

// parts is the number of parts of a measurement. The server and its floors alternate, so that other load of the machine
// affects both.
const parts = 8

func BenchmarkHMAC(b *testing.B) {
	s := startService(b, false)
	p := startPeerFor(b)
	for _, z := range sizes {
		measureAt(b, s, p.address, p.cmd.Process.Pid, z)
	}
}

// BenchmarkPlainHMAC uses the smallest message over plain HTTP, where the program's own work
// matters most. The disk is a separate floor.
func BenchmarkPlainHMAC(b *testing.B) {
	s := startService(b, false)
	p := startPeerFor(b)
	s.restart(b, "--insecure-http")
	s.server.Address = rawhttp.PlainPrefix + s.server.Address
	measureAt(b, s, p.plain, p.cmd.Process.Pid, size{"64B plain", 64})
	var err error
	if disk, err = measureDisk(b.TempDir()); err != nil {
		b.Fatal(err)
	}
}

func measureAt(b *testing.B, s *service, peer string, pid int, z size) {
	b.Helper()
	for _, conns := range connections {
		var m *measurement
		b.Run(fmt.Sprintf("%s/conns=%d", z.name, conns), func(b *testing.B) {
			if m == nil {
				m = newMeasurement(b, s, peer, pid, z, conns)
			}
			m.run(b)
		})
		if m != nil {
			m.close()
			results = append(results, m.result)
		}
	}
}

func startPeerFor(tb testing.TB) *peer {
	tb.Helper()
	p, err := startPeer()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = p.close() })
	return p
}

// target is one server under load.
type target struct {
	load *load
	pid  int
	rawhttp.Exchange
	took    []time.Duration
	elapsed time.Duration
	cpu     time.Duration
}

func newTarget(b *testing.B, address string, pid, conns int, x rawhttp.Exchange) *target {
	b.Helper()
	l, err := dial(address, conns)
	if err != nil {
		b.Fatal(err)
	}
	t := &target{load: l, pid: pid, Exchange: x}
	if t.took, err = l.run(conns, x, nil); err != nil { // warm up each connection before the measurement
		b.Fatal(err)
	}
	return t
}

// work makes n exchanges and adds up their costs.
func (t *target) work(b *testing.B, n int) {
	b.Helper()
	before, err := cpuOf(t.pid)
	if err != nil {
		b.Fatal(err)
	}
	start := time.Now()
	if t.took, err = t.load.run(n, t.Exchange, t.took); err != nil {
		b.Fatal(err)
	}
	t.elapsed += time.Since(start)
	after, err := cpuOf(t.pid)
	if err != nil {
		b.Fatal(err)
	}
	t.cpu += after - before
}

func (t *target) rate() float64 { return float64(len(t.took)) / t.elapsed.Seconds() }

func (t *target) cpuPer() time.Duration { return t.cpu / time.Duration(max(len(t.took), 1)) }

// measurement is one size at one number of connections.
type measurement struct {
	size          size
	server, floor *target // floor reads the body
	echo          *target // nil for large messages
	result        result
}

func newMeasurement(b *testing.B, s *service, peer string, pid int, z size, conns int) *measurement {
	b.Helper()
	x, err := s.hmac(z)
	if err != nil {
		b.Fatal(err)
	}
	body := s.body(z)
	m := &measurement{size: z, result: result{size: z, conns: conns}}
	m.server = newTarget(b, s.server.Address, s.server.PID(), conns, x)
	m.floor = newTarget(b, peer, pid, conns, rawhttp.Exchange{Request: rawhttp.Post("/discard", s.token, body)})
	if z.bytes <= maxEcho {
		m.echo = newTarget(b, peer, pid, conns, rawhttp.Exchange{Request: rawhttp.Post("/echo", s.token, body), Answer: body})
	}
	return m
}

func (m *measurement) targets() []*target {
	if m.echo == nil {
		return []*target{m.server, m.floor}
	}
	return []*target{m.server, m.echo, m.floor}
}

func (m *measurement) close() {
	for _, t := range m.targets() {
		_ = t.load.close() // the measurement is done
	}
}

// run makes at least one request per connection, even if b.N is smaller.
func (m *measurement) run(b *testing.B) {
	n := max(b.N, len(m.server.load.conns))
	each := max(n/parts, len(m.server.load.conns))
	for _, t := range m.targets() {
		t.took, t.elapsed, t.cpu = t.took[:0], 0, 0
	}
	for done := 0; done < n; done += each {
		b.StartTimer()
		m.server.work(b, each)
		b.StopTimer()
		for _, t := range m.targets()[1:] {
			t.work(b, each)
		}
	}
	m.result.fill(m)
	m.result.report(b)
}

// bareHMAC returns the CPU time of the HMAC alone, with a keyed state.
func bareHMAC(z size) time.Duration {
	message := z.message()
	mac := hmac.New(sha512.New384, key)
	var out [48]byte
	return cpuPerCall(func() {
		mac.Reset()
		mac.Write(message)
		mac.Sum(out[:0])
	})
}

// BenchmarkMemory has 64 messages of 16 MiB in flight at the same time: no connection sends its
// second half before all have sent their first.
func BenchmarkMemory(b *testing.B) {
	const conns = 64
	largest := sizes[len(sizes)-1]
	s := startService(b, false)
	s.restart(b)
	x, err := s.hmac(largest)
	if err != nil {
		b.Fatal(err)
	}
	small, err := s.hmac(sizes[0])
	if err != nil {
		b.Fatal(err)
	}
	warm := newTarget(b, s.server.Address, s.server.PID(), 1, small)
	defer func() { _ = warm.load.close() }()
	idle, err := memoryOf(s.server.PID(), "VmRSS")
	if err == nil {
		err = resetPeak(s.server.PID())
	}
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := inFlight(s.server.Address, conns, x); err != nil {
			b.Fatal(err)
		}
	}
	peak, err := memoryOf(s.server.PID(), "VmHWM")
	if err != nil {
		b.Fatal(err)
	}
	above := float64(peak-idle) / (1 << 20)
	b.ReportMetric(above, "MiB-above-idle")
	b.ReportMetric(float64(idle)/(1<<20), "MiB-idle")
	memory = &memoryResult{idle: float64(idle) / (1 << 20), above: above}
}

// inFlight sends one request on each connection, in lockstep.
func inFlight(address string, conns int, x rawhttp.Exchange) error {
	l, err := dial(address, conns)
	if err != nil {
		return err
	}
	errs := make([]error, conns)
	half := len(x.Request) / 2
	var group, halfway sync.WaitGroup
	halfway.Add(conns)
	for i, c := range l.conns {
		group.Go(func() {
			_, err := c.Write(x.Request[:half])
			halfway.Done()
			halfway.Wait()
			if err == nil {
				_, err = c.Do(rawhttp.Exchange{Request: x.Request[half:], Answer: x.Answer})
			}
			errs[i] = err
		})
	}
	group.Wait()
	return errors.Join(errors.Join(errs...), l.close())
}

// TestBenchmarksGetCorrectResponses checks that the benchmarks get correct responses.
func TestBenchmarksGetCorrectResponses(t *testing.T) {
	s := startService(t, false)
	p := startPeerFor(t)
	for _, z := range sizes {
		x, err := s.hmac(z)
		if err != nil {
			t.Fatal(err)
		}
		floor := rawhttp.Exchange{Request: rawhttp.Post("/discard", "", s.body(z)), Answer: fmt.Append(nil, len(s.body(z)))}
		for address, right := range map[string]rawhttp.Exchange{s.server.Address: x, p.address: floor} {
			l, err := dial(address, 2)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.run(3, right, nil); err != nil {
				t.Errorf("%s: %v", z.name, err)
			}
			if _, err := l.run(1, rawhttp.Exchange{Request: right.Request, Answer: []byte("another answer")}, nil); err == nil {
				t.Errorf("%s: a wrong answer is taken for right", z.name)
			}
			if err := l.close(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := inFlight(s.server.Address, 4, mustHMAC(t, s, sizes[3])); err != nil {
		t.Error(err)
	}
}

func mustHMAC(t *testing.T, s *service, z size) rawhttp.Exchange {
	t.Helper()
	x, err := s.hmac(z)
	if err != nil {
		t.Fatal(err)
	}
	return x
}
