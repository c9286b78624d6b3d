package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// commitModel is the model of docs/capacity.md for audit rows of replicas on one PostgreSQL server. One replica commits
// at a time. Meanwhile each of the others collects rows for its next commit.
type commitModel struct {
	fixed, perRow float64 // the duration of a commit is fixed + rows·perRow, in seconds
	most          int     // rows of a commit
	replicas      int
}

// newCommitModel returns the model of a fast disk.
func newCommitModel(replicas int) commitModel {
	return commitModel{fixed: (500 * time.Microsecond).Seconds(), perRow: (20 * time.Microsecond).Seconds(), most: 512, replicas: replicas}
}

// limit returns the rows per second that are possible with commits of the maximum size.
func (m commitModel) limit() float64 { return float64(m.most) / (m.fixed + float64(m.most)*m.perRow) }

// at returns the rows of a commit and how long a row waits for its commit, at a rate below the limit.
func (m commitModel) at(rate float64) (rows, wait float64) {
	commit := m.fixed / (1 - rate*m.perRow)
	return rate * commit, 1.5 * float64(m.replicas) * commit
}

// simulated returns the same from a simulation in which rows arrive at random, and replicas commit in the order in
// which they asked.
func (m commitModel) simulated(rate float64, dice *rand.Rand) (rows, wait float64) {
	const total = 200_000
	arrivals := make([][]float64, m.replicas) // of rows that are not committed, for each replica
	asked := make([]float64, m.replicas)      // when a replica asked for its commit
	for i := range asked {
		asked[i] = math.Inf(1)
	}
	taken := make([]int, m.replicas) // rows of that commit
	ask := func(i int, now float64) {
		asked[i], taken[i] = now, min(len(arrivals[i]), m.most)
		if taken[i] == 0 {
			asked[i] = math.Inf(1)
		}
	}
	var now, commits, waited, done float64
	next := dice.ExpFloat64() / rate
	arrive := func(until float64) {
		for ; next <= until; next += dice.ExpFloat64() / rate {
			i := dice.IntN(m.replicas)
			arrivals[i] = append(arrivals[i], next)
			if math.IsInf(asked[i], 1) {
				ask(i, next)
			}
		}
	}
	for done < total {
		first := 0
		for i := range asked {
			if asked[i] < asked[first] {
				first = i
			}
		}
		if math.IsInf(asked[first], 1) { // no replica has a row
			now = next
			arrive(now)
			continue
		}
		now = max(now, asked[first]) + m.fixed + float64(taken[first])*m.perRow
		arrive(now)
		for _, at := range arrivals[first][:taken[first]] {
			waited += now - at
		}
		commits, done = commits+1, done+float64(taken[first])
		arrivals[first] = arrivals[first][taken[first]:]
		ask(first, now)
	}
	return done / commits, waited / done
}

// TestCommitModel compares the model with the simulation, at rates at which a commit has several rows.
func TestCommitModel(t *testing.T) {
	for _, replicas := range []int{1, 2, 4, 8} {
		m := newCommitModel(replicas)
		for _, load := range []float64{0.5, 0.7, 0.9} {
			t.Run(fmt.Sprintf("replicas=%d/load=%.1f", replicas, load), func(t *testing.T) {
				rate := load * m.limit()
				rows, wait := m.at(rate)
				gotRows, gotWait := m.simulated(rate, rand.New(rand.NewPCG(1, uint64(replicas))))
				if math.Abs(gotRows/rows-1) > 0.1 || math.Abs(gotWait/wait-1) > 0.1 {
					t.Errorf("the simulation has %.1f rows in a commit and a wait of %.2f ms; the model has %.1f and %.2f ms", gotRows, 1e3*gotWait, rows, 1e3*wait)
				}
			})
		}
	}
}

// TestCommitModelAboveTheLimit shows that rows wait longer and longer above the limit.
func TestCommitModelAboveTheLimit(t *testing.T) {
	m := newCommitModel(2)
	_, below := m.simulated(0.9*m.limit(), rand.New(rand.NewPCG(1, 1)))
	_, above := m.simulated(1.1*m.limit(), rand.New(rand.NewPCG(1, 1)))
	if above < 10*below {
		t.Errorf("rows wait %.3f s above the limit and %.3f s below it", above, below)
	}
}
