package bench

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig/rawhttp"
)

// The targets for a forwarded HMAC relative to a local one in the same run: the ratio of the median durations of a
// small message, and the ratio of the rates of a streamed message.
const (
	aimForwardedMedian = 2.5
	aimForwardedRate   = 0.5
)

// forwarded is the result of both measurements.
type forwarded struct {
	size          size
	conns         int
	local, remote time.Duration // the medians
	times         float64       // remote divided by local
	rate          float64       // share of the local rate
}

var forwardedResults []forwarded

// federation is two processes that trust each other. Requests go to the first one, for keys of its
// own and for keys of the second.
type federation struct {
	asked *service
	own   string
	there string
}

func startFederation(tb testing.TB, symbols bool) *federation {
	tb.Helper()
	binary, err := program.Build(symbols)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = binary.Remove() })
	start := func(system string) *service {
		host := "127.0.0." + system
		return startProcess(tb, binary, "--system-id", system, "--server-name", host, "--external-listen", host+":0")
	}
	asked, owner := start("2"), start("3")
	here, there := asked.admin(tb), owner.admin(tb)
	program.Trust(tb, here, there)
	program.Trust(tb, there, here)
	ctx := tb.Context()
	session, err := here.GetCurrentSession(ctx)
	if err == nil {
		_, err = here.CreatePrincipalTrust(ctx, schema.CreatePrincipalTrustRequest{PrincipalID: session.Principal.ID, TrustedServerSystemID: 3, Flag: "expose"})
	}
	if err != nil {
		tb.Fatal(err)
	}
	var link schema.HiddenLink
	if err = link.UnmarshalText([]byte(owner.link)); err == nil {
		_, err = there.GrantACL(ctx, schema.ACLChangeRequest{
			TTag: link, SystemID: 2, PrincipalID: session.Principal.PrincipalID, Rights: schema.Rights(keyserver.Read),
		})
	}
	if err != nil {
		tb.Fatal(err)
	}
	return &federation{asked: asked, own: asked.link, there: owner.link}
}

// admin returns a client of the key server as its administrator.
func (s *service) admin(tb testing.TB) *client.Client {
	tb.Helper()
	password, err := s.server.Password()
	if err != nil {
		tb.Fatal(err)
	}
	return program.Client(tb, program.Connect(tb, s.server.DataDir, func() string { return s.server.Address }), "admin", password, 0)
}

// hmacs returns the same request for a local key and for a key of the peer.
func (f *federation) hmacs(z size) (local, remote rawhttp.Exchange, err error) {
	f.asked.link = f.own
	if local, err = f.asked.hmac(z); err != nil {
		return local, remote, err
	}
	f.asked.link = f.there
	remote, err = f.asked.hmac(z)
	f.asked.link = f.own
	return local, remote, err
}

func BenchmarkForwardedHMAC(b *testing.B) {
	f := startFederation(b, false)
	for _, z := range []size{sizes[0], sizes[len(sizes)-1]} {
		for _, conns := range []int{1, 16} {
			if z.bytes > maxEcho && conns > 4 {
				conns = 4
			}
			var result forwarded
			b.Run(fmt.Sprintf("%s/conns=%d", z.name, conns), func(b *testing.B) { result = f.measure(b, z, conns) })
			if result.conns != 0 {
				forwardedResults = append(forwardedResults, result)
			}
		}
	}
}

// measure alternates between both requests, so that other load of the machine affects both.
func (f *federation) measure(b *testing.B, z size, conns int) forwarded {
	b.Helper()
	own, there, err := f.hmacs(z)
	if err != nil {
		b.Fatal(err)
	}
	var targets []*target
	for _, x := range []rawhttp.Exchange{own, there} {
		t := newTarget(b, f.asked.server.Address, f.asked.server.PID(), conns, x)
		t.took = t.took[:0]
		defer func() { _ = t.load.close() }()
		targets = append(targets, t)
	}
	each := max(b.N/parts, conns)
	b.StopTimer()
	for done := 0; done < max(b.N, parts*conns); done += each {
		targets[0].work(b, each)
		b.StartTimer()
		targets[1].work(b, each)
		b.StopTimer()
	}
	for _, t := range targets {
		slices.Sort(t.took)
	}
	r := forwarded{size: z, conns: conns, local: quantile(targets[0].took, 0.5), remote: quantile(targets[1].took, 0.5), rate: targets[1].rate() / targets[0].rate()}
	r.times = float64(r.remote) / float64(r.local)
	b.ReportMetric(float64(time.Second)/targets[1].rate(), "ns/op")
	b.ReportMetric(micros(r.local), "local-p50-µs")
	b.ReportMetric(micros(r.remote), "p50-µs")
	b.ReportMetric(r.times, "x-local-p50")
	b.ReportMetric(r.rate, "x-local-rate")
	return r
}

// printForwarded prints the cost of forwarding with the aims.
func printForwarded(out io.Writer) {
	for _, r := range forwardedResults {
		fmt.Fprintf(out, "%s forwarded, %d conns: p50 %s, %s locally; ", r.size.name, r.conns, short(r.remote), short(r.local))
		if r.size.bytes > maxEcho {
			fmt.Fprintf(out, "%.0f %% of the local rate; aim at least %.0f %%: %s\n", 100*r.rate, 100*aimForwardedRate, verdict(r.rate >= aimForwardedRate))
		} else {
			fmt.Fprintf(out, "%.2f x; aim at most %.1f x: %s\n", r.times, aimForwardedMedian, verdict(r.times <= aimForwardedMedian))
		}
	}
}

// TestForwardedMeasurementIsOfRightAnswers checks that the benchmark gets correct responses.
func TestForwardedMeasurementIsOfRightAnswers(t *testing.T) {
	f := startFederation(t, false)
	for _, z := range sizes {
		local, remote, err := f.hmacs(z)
		if err != nil {
			t.Fatal(err)
		}
		if string(local.Request) == string(remote.Request) {
			t.Fatal("both requests are for one key")
		}
		l, err := dial(f.asked.server.Address, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range []rawhttp.Exchange{local, remote} {
			if _, err := l.run(2, x, nil); err != nil {
				t.Errorf("%s: %v", z.name, err)
			}
		}
		if err := l.close(); err != nil {
			t.Error(err)
		}
	}
}
