package controllers

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"
)

// shelf is a list that a service offers, read with a pause that a test holds.
type shelf struct {
	mu    sync.Mutex
	rows  []string
	err   error
	reads int
	began chan struct{} // receives at each read, if not nil
	gate  chan struct{} // a read waits for it, if not nil
}

func (s *shelf) read(context.Context) ([]string, error) {
	s.mu.Lock()
	s.reads++
	rows, err, began, wait := append([]string{}, s.rows...), s.err, s.began, s.gate
	s.mu.Unlock()
	if began != nil {
		began <- struct{}{}
		<-wait
	}
	return rows, err
}

func (s *shelf) set(rows ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows = rows
}

func listingOf(s *shelf) *listing[string] {
	return &listing[string]{
		clock: clock.RealClock{}, read: s.read,
		keys: func(row string) []string { return []string{row, "key:" + row} },
	}
}

func mustFind(t *testing.T, l *listing[string], key string, want bool) {
	t.Helper()
	row, ok, err := l.find(context.Background(), time.Time{}, key)
	if err != nil || ok != want {
		t.Fatalf("find(%q) = %q, %t, %v; want %t", key, row, ok, err, want)
	}
}

func TestListingIsReadOnce(t *testing.T) {
	s := &shelf{rows: []string{"a", "b"}}
	l := listingOf(s)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { mustFind(t, l, "key:a", true) })
	}
	wg.Wait()
	mustFind(t, l, "c", false)
	if s.reads != 1 {
		t.Errorf("%d reads for 51 questions", s.reads)
	}
}

func TestListingFollowsOwnWritesAndTheFeed(t *testing.T) {
	s := &shelf{rows: []string{"a"}}
	l := listingOf(s)
	mustFind(t, l, "a", true)
	l.put("b")
	if l.changed("b", "created") {
		t.Error("an own creation is news")
	}
	mustFind(t, l, "key:b", true)
	l.drop("b")
	if l.changed("b", "deleted") {
		t.Error("an own deletion is news")
	}
	mustFind(t, l, "key:b", false)
	if !l.changed("a", "deleted") {
		t.Error("an outside deletion is no news")
	}
	mustFind(t, l, "a", false)
	if s.reads != 1 {
		t.Errorf("%d reads: what is known was read again", s.reads)
	}
	s.set("c")
	if !l.changed("c", "created") || !l.changed("c", "updated") {
		t.Error("an outside creation or update is no news")
	}
	mustFind(t, l, "c", true)
	if s.reads != 2 {
		t.Errorf("%d reads after one outside creation", s.reads)
	}
}

func TestListingKeepsWritesThatAReadInFlightMissed(t *testing.T) {
	s := &shelf{rows: []string{"a", "old"}, began: make(chan struct{}), gate: make(chan struct{})}
	l := listingOf(s)
	found := make(chan bool)
	go func() {
		_, ok, _ := l.find(context.Background(), time.Time{}, "new")
		_, old, _ := l.find(context.Background(), time.Time{}, "old")
		found <- ok && !old
	}()
	<-s.began // the service has answered already, without the new row
	l.put("new")
	l.drop("old")
	close(s.gate)
	if !<-found {
		t.Error("a read that began before a write has undone it")
	}
}

func TestListingReadsAgainWhatChangedDuringARead(t *testing.T) {
	s := &shelf{rows: []string{"a"}, began: make(chan struct{}), gate: make(chan struct{})}
	l := listingOf(s)
	found := make(chan bool)
	go func() {
		_, ok, _ := l.find(context.Background(), time.Time{}, "b")
		found <- ok
	}()
	<-s.began
	s.set("a", "b")
	l.invalidate()
	s.gate <- struct{}{}
	<-s.began
	s.gate <- struct{}{}
	if !<-found {
		t.Error("a change during a read was lost")
	}
}

// The listing waits for a read already when the feed reports the next change,
// which that read may have missed.
func TestListingReadsAgainWhatTheFeedReportsDuringARead(t *testing.T) {
	for change, id := range map[string]string{"updated": "a", "created": "b", "deleted": "old"} {
		t.Run(change, func(t *testing.T) {
			s := &shelf{rows: []string{"a", "old"}}
			l := listingOf(s)
			mustFind(t, l, "a", true)
			l.changed("a", "updated")
			s.began, s.gate = make(chan struct{}), make(chan struct{})
			found := make(chan bool)
			go func() {
				_, ok, _ := l.find(context.Background(), time.Time{}, "b")
				found <- ok
			}()
			<-s.began
			s.set("a", "b")
			if !l.changed(id, change) {
				t.Error("an outside change is no news")
			}
			go func() {
				for range s.began { // further reads
				}
			}()
			close(s.gate)
			if !<-found {
				t.Error("a change that the feed reported during a read was lost")
			}
			close(s.began)
		})
	}
}

// What the listing has noted already does not make it read for ever while the
// manager makes one thing after the other.
func TestListingIsNotReadAgainForOwnWritesDuringARead(t *testing.T) {
	s := &shelf{rows: []string{"a", "old"}}
	l := listingOf(s)
	mustFind(t, l, "a", true)
	l.changed("a", "updated")
	s.began, s.gate = make(chan struct{}), make(chan struct{})
	found := make(chan bool)
	go func() {
		_, ok, _ := l.find(context.Background(), time.Time{}, "new")
		_, old, _ := l.find(context.Background(), time.Time{}, "old")
		found <- ok && !old
	}()
	<-s.began
	l.put("new")
	l.drop("old")
	l.changed("new", "created")
	l.changed("old", "deleted")
	close(s.gate)
	if !<-found || s.reads != 2 {
		t.Errorf("%d reads, of which one is due", s.reads)
	}
}

func TestListingRemembersAFailureForAMoment(t *testing.T) {
	s := &shelf{err: errors.New("down")}
	l := listingOf(s)
	for range 10 {
		if _, _, err := l.find(context.Background(), time.Time{}, "a"); err == nil {
			t.Fatal("no error")
		}
	}
	if s.reads != 1 {
		t.Errorf("%d reads in a row of a list that fails", s.reads)
	}
}

func TestListingOutlivesACancelledReader(t *testing.T) {
	s := &shelf{rows: []string{"a"}}
	l := listingOf(s)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := l.find(ctx, time.Time{}, "a"); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	mustFind(t, l, "a", true)
}

func TestListingHonoursNotBefore(t *testing.T) {
	s := &shelf{rows: []string{"a"}}
	l := listingOf(s)
	mustFind(t, l, "a", true)
	if _, _, err := l.find(context.Background(), time.Now(), "a"); err != nil || s.reads != 2 {
		t.Errorf("reads %d, error %v: an old reading was good enough", s.reads, err)
	}
}
