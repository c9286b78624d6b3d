package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// fleet is some replicas on one PostgreSQL server with durability.
type fleet struct {
	*service // of the first replica
	replicas []*program.Server
	metrics  []string // addresses
	database *pgx.Conn
	cluster  *pgtest.Cluster
}

func startFleet(b *testing.B, binary program.Program, replicas int) *fleet {
	b.Helper()
	f := &fleet{cluster: pgtest.Start(b)}
	url := f.cluster.Database(b)
	var each [][]string
	for range replicas {
		f.metrics = append(f.metrics, rig.FreeAddress(b, "127.0.0.1"))
		each = append(each, []string{"--metrics-listen", f.metrics[len(f.metrics)-1]})
	}
	f.replicas = binary.Replicas(b, each, "--database-url", url)
	f.service = openService(b, binary, f.replicas[0])
	var err error
	f.database, err = pgx.Connect(b.Context(), url)
	rig.Must(b, err)
	b.Cleanup(func() { _ = f.database.Close(context.WithoutCancel(b.Context())) })
	return f
}

// use is what a fleet has used since its start.
type use struct {
	servers, database time.Duration // CPU time
	rows, commits     float64       // of the audit log
	committing        time.Duration // sum of the durations of the commits, including waits for other replicas
	wal               int64         // bytes
}

func (f *fleet) used(b *testing.B) (u use) {
	b.Helper()
	for i, r := range f.replicas {
		cpu, err := cpuOf(r.PID())
		rig.Must(b, err)
		u.servers += cpu
		u.rows += rig.Metric(b, f.metrics[i], "keyserver_audit_rows_total")
		u.commits += rig.Metric(b, f.metrics[i], "keyserver_audit_commit_duration_seconds_count")
		u.committing += time.Duration(rig.Metric(b, f.metrics[i], "keyserver_audit_commit_duration_seconds_sum") * float64(time.Second))
	}
	rig.Must(b, f.database.QueryRow(b.Context(), `SELECT (pg_current_wal_lsn() - '0/0')::bigint`).Scan(&u.wal))
	for _, pid := range f.cluster.Processes() {
		if cpu, err := cpuOf(pid); err == nil { // else the process has ended
			u.database += cpu
		}
	}
	return u
}

func (u use) since(v use) use {
	return use{u.servers - v.servers, u.database - v.database, u.rows - v.rows, u.commits - v.commits, u.committing - v.committing, u.wal - v.wal}
}

// fleetResult is one line of the table.
type fleetResult struct {
	replicas, conns int
	rate            float64
	use
}

// fleets are the numbers of replicas.
var fleets = []int{1, 2, 4}

// BenchmarkReplicas measures HMACs of 64 bytes with 1, 2 and 4 replicas on one PostgreSQL server. The same number of
// callers is spread over the replicas. docs/capacity.md has the model that uses the results.
func BenchmarkReplicas(b *testing.B) {
	binary, err := program.Build(false)
	rig.Must(b, err)
	b.Cleanup(func() { _ = binary.Remove() })
	const calls = 240 // of each connection
	var results []fleetResult
	for _, replicas := range fleets {
		f := startFleet(b, binary, replicas)
		x, err := f.hmac(sizes[0])
		rig.Must(b, err)
		for _, conns := range []int{4, 16, 64, 256} {
			b.Run(fmt.Sprintf("replicas=%d/conns=%d", replicas, conns), func(b *testing.B) {
				all := &load{}
				defer func() { _ = all.close() }() // the measurement is done
				for _, r := range f.replicas {
					own, err := dial(r.Address, conns/replicas)
					rig.Must(b, err)
					all.conns = append(all.conns, own.conns...)
				}
				_, err := all.run(4*conns, x, nil)
				rig.Must(b, err)
				var took []time.Duration
				before, start := f.used(b), time.Now()
				for b.Loop() {
					took, err = all.run(calls*conns, x, took)
					rig.Must(b, err)
				}
				elapsed := time.Since(start)
				r := fleetResult{replicas, conns, float64(len(took)) / elapsed.Seconds(), f.used(b).since(before)}
				b.ReportMetric(r.rate, "HMACs/s")
				b.ReportMetric(micros(r.database)/r.rows, "database-cpu-µs/row")
				b.ReportMetric(r.rows/r.commits, "rows/commit")
				results = append(results, r)
			})
		}
		for _, r := range f.replicas {
			rig.Must(b, r.Stop())
		}
	}
	printFleet(os.Stdout, results)
}

func printFleet(out io.Writer, results []fleetResult) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\nreplicas\tconns\tHMACs/s\trows/commit\tcommit\tCPU of the database/row\tof replicas/row\tWAL bytes/row\t")
	for _, r := range results {
		fmt.Fprintf(w, "%d\t%d\t%.0f\t%.1f\t%s\t%s\t%s\t%.0f\t\n", r.replicas, r.conns, r.rate, r.rows/r.commits,
			short(time.Duration(float64(r.committing)/r.commits)), short(time.Duration(float64(r.database)/r.rows)),
			short(time.Duration(float64(r.servers)/r.rows)), float64(r.wal)/r.rows)
	}
	_ = w.Flush() // to a terminal
	for _, replicas := range fleets {
		var commit, cpu line
		for _, r := range results {
			if r.replicas == replicas {
				commit.add(r.rows/r.commits, float64(r.committing)/r.commits)
				cpu.add(r.rows/r.commits, float64(r.database)/r.commits)
			}
		}
		fmt.Fprintf(out, "%d replicas: a commit takes %s; it costs the database %s of CPU\n", replicas, commit, cpu)
	}
}

// line fits y = fixed + slope·x to points.
type line struct{ n, x, y, xx, xy float64 }

func (l *line) add(x, y float64) {
	l.n, l.x, l.y, l.xx, l.xy = l.n+1, l.x+x, l.y+y, l.xx+x*x, l.xy+x*y
}

func (l line) fit() (fixed, slope float64) {
	slope = (l.n*l.xy - l.x*l.y) / (l.n*l.xx - l.x*l.x)
	return (l.y - slope*l.x) / l.n, slope
}

func (l line) String() string {
	fixed, slope := l.fit()
	return fmt.Sprintf("%s + %s per row", short(time.Duration(fixed)), short(time.Duration(slope)))
}
