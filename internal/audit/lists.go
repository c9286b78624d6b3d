package audit

import (
	"cmp"
	"sync"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
)

const (
	// othersRecent is how long another process counts as active after it has written a row. Lists leave time for the
	// commits of active processes.
	othersRecent = time.Second
	// mostHeld and maxRest limit a rest: to mostHeld times the time in which no other process could commit, and to
	// maxRest.
	mostHeld = 5
	maxRest  = time.Second
)

// lists contains the waiters with several rows. The waiters of different principals are served alternately. Only one
// process at a time can commit to a shared database. So while other processes write, each commit with a list is
// followed by a rest, during which this process commits no list.
type lists struct {
	mu      sync.Mutex
	waiting quota.FairQueue[keyserver.PrincipalRef]
	waiters map[*quota.Waiter[keyserver.PrincipalRef]]*waiter // nil before the first
	rest    chan struct{}                                     // closed at the end of the rest; nil if there is none
	ended   bool                                              // end was called: no more rests
}

// join adds a waiter. It returns false if the number of waiters has already reached most.
func (l *lists) join(wait *waiter, most int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting.Len() >= most {
		return false
	}
	if l.waiters == nil {
		l.waiters = map[*quota.Waiter[keyserver.PrincipalRef]]*waiter{}
	}
	l.waiters[l.waiting.Join(cmp.Or(wait.entry.Actor, wait.entry.Principal))] = wait
	return true
}

// next removes and returns a waiter that may be committed. It returns nil if there is none.
func (l *lists) next() *waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rest != nil || l.waiting.Len() == 0 {
		return nil
	}
	served := l.waiting.Serve()
	wait := l.waiters[served]
	delete(l.waiters, served)
	return wait
}

func (l *lists) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting.Len()
}

func (l *lists) begin(length time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	rest := make(chan struct{})
	l.rest = rest
	time.AfterFunc(length, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.rest = nil
		close(rest)
	})
}

// resting returns a channel that is closed at the end of the rest. It returns nil if there is none.
func (l *lists) resting() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rest
}

// end ends the rest and prevents further ones.
func (l *lists) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended, l.rest = true, nil
}

// others detects rows of other processes: the numbers of these rows are missing in the commits of this process.
type others struct {
	next     int64     // number of the next row, if no other process writes; 0 if unknown
	first    int64     // number of the first row of the current commit
	numbered time.Time // time at which first was assigned; from then on, other processes cannot commit
	rows     int64     // of other processes since the last commit with a list
	at       time.Time // when rows was last increased
}

// number records the number of the first row of the current commit. If the commit gets other numbers later, number is
// called again.
func (o *others) number(first int64, now time.Time) { o.first, o.numbered = first, now }

// end records the end of a commit of rows and returns the length of the rest after it. There is a rest only if the
// commit had a list and another process has written recently. Up to three processes whose lists are equally long use,
// all together, half of the time.
func (o *others) end(rows int, list bool, clock func() time.Time, err error) time.Duration {
	if err != nil {
		o.next = 0
		return 0
	}
	if o.next != 0 && o.first != o.next {
		o.rows += o.first - o.next
		o.at = o.numbered
	}
	o.next = o.first + int64(rows)
	if !list {
		return 0
	}
	times := min(1+2*float64(o.rows)/float64(rows), mostHeld)
	o.rows = 0
	if since := o.numbered.Sub(o.at); since < 0 || since > othersRecent {
		return 0
	}
	return min(time.Duration(times*float64(clock().Sub(o.numbered))), maxRest)
}
