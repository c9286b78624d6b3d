package bench

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"text/tabwriter"
	"time"
)

// The targets: CPU time of the server per request, share of the echo server's rate, multiple of the floor, memory.
const (
	aimSmallCPU  = 60 * time.Microsecond
	aimSmallRate = 0.60
	aimMiBCPU    = 5 * time.Millisecond
	aimLargest   = 1.4
	aimMemory    = 64.0
)

type result struct {
	size     size
	conns    int
	rate     float64 // requests per second
	p50, p99 time.Duration
	cpu      time.Duration // of the server, per request
	ofEcho   float64       // share of the echo server's rate; 0 if it was not measured
	echoCPU  time.Duration
	hmac     time.Duration // the HMAC alone
	reading  time.Duration // CPU time of a server that only reads the body
}

type memoryResult struct{ idle, above float64 } // MiB

var (
	results []result
	memory  *memoryResult
	disk    *diskResult
)

// plainCPU are the target CPU times over plain HTTP, by number of connections.
var plainCPU = map[int]time.Duration{1: 260 * time.Microsecond, 16: 72 * time.Microsecond, 64: 55 * time.Microsecond}

// diskResult is the median duration and the CPU time of one durable write of 512 bytes.
type diskResult struct{ p50, cpu time.Duration }

// measureDisk overwrites a file of 1 MiB, because extending a file costs more.
func measureDisk(dir string) (*diskResult, error) {
	f, err := os.Create(filepath.Join(dir, "floor"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	const blocks, writes = 2048, 2000
	block := make([]byte, 512)
	for i := range int64(blocks) {
		if _, err := f.WriteAt(block, i*512); err != nil {
			return nil, err
		}
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	took := make([]time.Duration, 0, writes)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := threadTime()
	for i := range int64(writes) {
		start := time.Now()
		if _, err := f.WriteAt(block, i%blocks*512); err != nil {
			return nil, err
		}
		if err := syncData(f); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
	cpu := threadTime() - before
	slices.Sort(took)
	return &diskResult{quantile(took, 0.5), cpu / writes}, nil
}

func (r *result) fill(m *measurement) {
	r.rate, r.cpu, r.reading = m.server.rate(), m.server.cpuPer(), m.floor.cpuPer()
	slices.Sort(m.server.took)
	r.p50, r.p99 = quantile(m.server.took, 0.50), quantile(m.server.took, 0.99)
	if m.echo != nil {
		r.ofEcho, r.echoCPU = r.rate/m.echo.rate(), m.echo.cpuPer()
	}
	r.hmac = bareHMAC(m.size)
}

// overFloor returns the CPU time as a multiple of that of the HMAC and reading the body.
func (r *result) overFloor() float64 { return float64(r.cpu) / float64(r.hmac+r.reading) }

func (r *result) report(b *testing.B) {
	b.ReportMetric(float64(time.Second)/r.rate, "ns/op") // b.N may be less than the connections
	b.ReportMetric(r.rate, "req/s")
	b.ReportMetric(micros(r.cpu), "cpu-µs/req")
	b.ReportMetric(micros(r.p50), "p50-µs")
	b.ReportMetric(micros(r.p99), "p99-µs")
	b.ReportMetric(r.overFloor(), "x-floor")
	if r.ofEcho > 0 {
		b.ReportMetric(r.ofEcho, "x-echo-rate")
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// printTable prints all results with the aims.
func printTable(out io.Writer) {
	if len(results) > 0 {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(w, "\nmessage\tconns\treq/s\tp50\tp99\tCPU/req\techo CPU\tof echo's rate\tHMAC alone\treading\tover both\t")
		for _, r := range results {
			echoCPU, ofEcho := "-", "-"
			if r.ofEcho > 0 {
				echoCPU, ofEcho = short(r.echoCPU), fmt.Sprintf("%.0f %%", 100*r.ofEcho)
			}
			fmt.Fprintf(w, "%s\t%d\t%.0f\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.2f x\t\n", r.size.name, r.conns, r.rate,
				short(r.p50), short(r.p99), short(r.cpu), echoCPU, ofEcho, short(r.hmac), short(r.reading), r.overFloor())
		}
		_ = w.Flush() // to a terminal
	}
	for _, r := range results {
		switch r.size.name {
		case "64B":
			aim(out, r, "CPU", short(r.cpu), "at most", short(aimSmallCPU), r.cpu <= aimSmallCPU)
			aim(out, r, "of echo's rate", fmt.Sprintf("%.0f %%", 100*r.ofEcho), "at least", fmt.Sprintf("%.0f %%", 100*aimSmallRate), r.ofEcho >= aimSmallRate)
		case "64B plain":
			aim(out, r, "CPU", short(r.cpu), "at most", short(plainCPU[r.conns]), r.cpu <= plainCPU[r.conns])
			if r.conns == 64 {
				aim(out, r, "of echo's rate", fmt.Sprintf("%.0f %%", 100*r.ofEcho), "at least", fmt.Sprintf("%.0f %%", 100*aimSmallRate), r.ofEcho >= aimSmallRate)
			}
		case "1MiB":
			aim(out, r, "CPU", short(r.cpu), "at most", short(aimMiBCPU), r.cpu <= aimMiBCPU)
		case "16MiB":
			aim(out, r, "over HMAC and reading", fmt.Sprintf("%.2f x", r.overFloor()), "at most", fmt.Sprintf("%.1f x", aimLargest), r.overFloor() <= aimLargest)
		}
	}
	if disk != nil {
		fmt.Fprintf(out, "one fdatasync of 512 bytes: %s, CPU %s\n", short(disk.p50), short(disk.cpu))
	}
	if memory != nil {
		fmt.Fprintf(out, "64 x 16MiB in flight: %.1f MiB above %.1f MiB idle; aim below %.0f MiB: %s\n",
			memory.above, memory.idle, aimMemory, verdict(memory.above < aimMemory))
	}
}

func aim(out io.Writer, r result, what, got, bound, want string, met bool) {
	fmt.Fprintf(out, "%s, %d conns: %s %s; aim %s %s: %s\n", r.size.name, r.conns, what, got, bound, want, verdict(met))
}

func verdict(met bool) string {
	if met {
		return "met"
	}
	return "MISSED"
}

// short rounds a duration to about three digits.
func short(d time.Duration) string {
	switch {
	case d >= 100*time.Millisecond:
		return d.Round(time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	default:
		return d.Round(100 * time.Nanosecond).String()
	}
}
