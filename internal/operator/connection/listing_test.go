package connection

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"
)

// shelf is a list of a fake key server. A test can delay its reads.
type shelf struct {
	mu    sync.Mutex
	rows  []string
	err   error
	reads int
	began chan struct{} // if not nil, a read sends to it when it begins
	gate  chan struct{} // a read waits until it receives from gate
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

func listingOf(s *shelf) *Listing[string] {
	return &Listing[string]{
		clock: clock.RealClock{}, read: s.read,
		keys: func(row string) []string { return []string{row, "key:" + row} },
	}
}

func mustFind(t *testing.T, l *Listing[string], key string, want bool) {
	t.Helper()
	row, ok, err := l.Find(context.Background(), time.Time{}, key)
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
	l.Put("b")
	if l.Changed("b", "created") {
		t.Error("an own creation is news")
	}
	mustFind(t, l, "key:b", true)
	l.Drop("b")
	if l.Changed("b", "deleted") {
		t.Error("an own deletion is news")
	}
	mustFind(t, l, "key:b", false)
	if !l.Changed("a", "deleted") {
		t.Error("an outside deletion is no news")
	}
	mustFind(t, l, "a", false)
	if s.reads != 1 {
		t.Errorf("%d reads: what is known was read again", s.reads)
	}
	s.set("c")
	if !l.Changed("c", "created") || !l.Changed("c", "updated") {
		t.Error("an outside creation or update is no news")
	}
	mustFind(t, l, "c", true)
	if s.reads != 2 {
		t.Errorf("%d reads after one outside creation", s.reads)
	}
}

// TestWhatAReadingSawFirstIsNews checks that a reported change is news, even if a reading already included the change.
func TestWhatAReadingSawFirstIsNews(t *testing.T) {
	s := &shelf{rows: []string{"a"}}
	l := listingOf(s)
	mustFind(t, l, "a", true)
	s.set("b")
	l.invalidate()
	mustFind(t, l, "b", true)
	if !l.Changed("a", "deleted") || !l.Changed("b", "created") {
		t.Error("a change that a reading had before the feed is no news")
	}
	mustFind(t, l, "b", true)
	if s.reads != 2 {
		t.Errorf("%d reads: what is known was read again", s.reads)
	}
	l.Put("a") // a late response to an earlier write
	mustFind(t, l, "a", false)
}

// TestAnOwnWriteIsNoNewsOnce checks that a recorded write of the manager suppresses one report of the feed.
func TestAnOwnWriteIsNoNewsOnce(t *testing.T) {
	for name, until := range map[string]func(*Listing[string]){
		"told":      func(l *Listing[string]) { l.Put("b"); l.Changed("b", created) },
		"told else": func(l *Listing[string]) { l.Put("b"); l.Changed("b", "updated") },
		"overtaken": func(l *Listing[string]) { l.Put("b"); l.Drop("b") },
		"all anew":  func(l *Listing[string]) { l.Put("b"); l.invalidate() },
		"late":      func(l *Listing[string]) { l.Changed("b", created); l.Put("b") },
	} {
		t.Run(name, func(t *testing.T) {
			s := &shelf{rows: []string{"a"}}
			l := listingOf(s)
			mustFind(t, l, "a", true)
			s.set("a", "b")
			until(l)
			mustFind(t, l, "a", true)
			if !l.Changed("b", created) {
				t.Error("what somebody else did is no news")
			}
		})
	}
}

// TestAnAnswerThatCameLateIsReadAgain checks that a late response of a write does not replace a newer reading.
func TestAnAnswerThatCameLateIsReadAgain(t *testing.T) {
	s := &shelf{rows: []string{"a"}}
	l := listingOf(s)
	mustFind(t, l, "a", true)
	s.set()
	l.Changed("a", "updated")
	mustFind(t, l, "a", false)
	l.Put("a") // the row as a write read it back before the update
	mustFind(t, l, "a", false)
	if s.reads != 3 {
		t.Errorf("%d reads", s.reads)
	}
	l.invalidate()
	mustFind(t, l, "a", false)
	l.Put("a")
	mustFind(t, l, "a", false)
}

func TestListingKeepsWritesThatAReadInFlightMissed(t *testing.T) {
	s := &shelf{rows: []string{"a", "old"}, began: make(chan struct{}), gate: make(chan struct{})}
	l := listingOf(s)
	found := make(chan bool)
	go func() {
		_, ok, _ := l.Find(context.Background(), time.Time{}, "new")
		_, old, _ := l.Find(context.Background(), time.Time{}, "old")
		found <- ok && !old
	}()
	<-s.began // the response is already made, without the new row
	l.Put("new")
	l.Drop("old")
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
		_, ok, _ := l.Find(context.Background(), time.Time{}, "b")
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

// TestListingReadsAgainWhatTheFeedReportsDuringARead checks that a change during a read causes another read.
func TestListingReadsAgainWhatTheFeedReportsDuringARead(t *testing.T) {
	for change, id := range map[string]string{"updated": "a", "created": "b", "deleted": "old"} {
		t.Run(change, func(t *testing.T) {
			s := &shelf{rows: []string{"a", "old"}}
			l := listingOf(s)
			mustFind(t, l, "a", true)
			l.Changed("a", "updated")
			s.began, s.gate = make(chan struct{}), make(chan struct{})
			found := make(chan bool)
			go func() {
				_, ok, _ := l.Find(context.Background(), time.Time{}, "b")
				found <- ok
			}()
			<-s.began
			s.set("a", "b")
			if !l.Changed(id, change) {
				t.Error("an outside change is no news")
			}
			go func() {
				for range s.began { // later reads
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

// TestListingIsNotReadAgainForOwnWritesDuringARead checks that recorded writes of the manager do not cause a new read
// each, while the manager creates many objects.
func TestListingIsNotReadAgainForOwnWritesDuringARead(t *testing.T) {
	s := &shelf{rows: []string{"a", "old"}}
	l := listingOf(s)
	mustFind(t, l, "a", true)
	l.Changed("a", "updated")
	s.began, s.gate = make(chan struct{}), make(chan struct{})
	found := make(chan bool)
	go func() {
		_, ok, _ := l.Find(context.Background(), time.Time{}, "new")
		_, old, _ := l.Find(context.Background(), time.Time{}, "old")
		found <- ok && !old
	}()
	<-s.began
	l.Put("new")
	l.Drop("old")
	l.Changed("new", "created")
	l.Changed("old", "deleted")
	close(s.gate)
	if !<-found || s.reads != 2 {
		t.Errorf("%d reads, of which one is due", s.reads)
	}
}

func TestListingRemembersAFailureForAMoment(t *testing.T) {
	s := &shelf{err: errors.New("down")}
	l := listingOf(s)
	for range 10 {
		if _, _, err := l.Find(context.Background(), time.Time{}, "a"); err == nil {
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
	if _, _, err := l.Find(ctx, time.Time{}, "a"); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	mustFind(t, l, "a", true)
}

func TestListingHonoursNotBefore(t *testing.T) {
	s := &shelf{rows: []string{"a"}}
	l := listingOf(s)
	mustFind(t, l, "a", true)
	if _, _, err := l.Find(context.Background(), time.Now(), "a"); err != nil || s.reads != 2 {
		t.Errorf("reads %d, error %v: an old reading was good enough", s.reads, err)
	}
}
