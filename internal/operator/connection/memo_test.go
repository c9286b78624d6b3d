package connection

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

// start is the initial time of a Memo's clock.
var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// countingServer is a fake key server that counts its requests.
type countingServer struct {
	asked  int
	says   string // "id" if empty
	err    error
	during func()
}

func (s *countingServer) read(_ context.Context, key string) (string, error) {
	s.asked++
	if s.during != nil {
		s.during()
	}
	return cmp.Or(s.says, "id") + " of " + key, s.err
}

func memoOf(s *countingServer) (*Memo[string], *testclock.FakeClock) {
	c := testclock.NewFakeClock(start)
	return &Memo[string]{
		clock: c, feed: "principal", read: s.read, by: map[string]memoEntry[string]{}, about: map[string]map[string]bool{},
		id: func(v string) string { return v },
	}, c
}

func TestMemoAsksOnceUntilSomethingChanges(t *testing.T) {
	cases := map[string]struct {
		reason string
		event  func(*Memo[string])
		after  time.Time // the second response must not be older
		want   int       // total number of requests
	}{
		"nothing":       {"an answer is kept", func(*Memo[string]) {}, time.Time{}, 1},
		"another kind":  {"a change of another kind concerns nobody here", func(m *Memo[string]) { m.Changed("role", "id of a", "updated") }, time.Time{}, 1},
		"another one":   {"a change of another object leaves the answer", func(m *Memo[string]) { m.Changed("principal", "id of b", "updated") }, time.Time{}, 1},
		"the same":      {"a change of the object voids the answer", func(m *Memo[string]) { m.Changed("principal", "id of a", "updated") }, time.Time{}, 2},
		"invalidated":   {"a connection that was lost voids everything", (*Memo[string]).invalidate, time.Time{}, 2},
		"asked for new": {"a requested reconcile gets a fresh answer", func(*Memo[string]) {}, start.Add(time.Second), 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := &countingServer{}
			m, _ := memoOf(s)
			for i, notBefore := range []time.Time{{}, tc.after} {
				if got, err := m.Get(context.Background(), notBefore, "a"); err != nil || got != "id of a" {
					t.Fatalf("get answers %q, %v", got, err)
				}
				if i == 0 {
					tc.event(m)
				}
			}
			if s.asked != tc.want {
				t.Errorf("%s: asked %d times, want %d", tc.reason, s.asked, tc.want)
			}
		})
	}
}

// TestMemoIsConfirmed checks that Confirm renews only a valid response that is equal to the newer one.
func TestMemoIsConfirmed(t *testing.T) {
	same, other := func(v string) bool { return v == "id of a" }, func(string) bool { return false }
	cases := map[string]struct {
		reason string
		before func(*Memo[string])
		same   func(string) bool
		want   int // total number of requests
	}{
		"other":   {"another answer is read", func(*Memo[string]) {}, other, 2},
		"changed": {"what the feed has voided stays void", func(m *Memo[string]) { m.Changed("principal", "id of a", "updated") }, same, 2},
		"void":    {"so does what a lost connection has", func(m *Memo[string]) { m.feed = ""; m.invalidate() }, same, 2},
		"same":    {"nobody is asked", func(*Memo[string]) {}, same, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := &countingServer{}
			m, _ := memoOf(s)
			later := start.Add(time.Hour)
			m.Confirm("a", later, same) // nothing is cached yet
			if _, err := m.Get(t.Context(), time.Time{}, "a"); err != nil {
				t.Fatal(err)
			}
			tc.before(m)
			m.Confirm("a", later, tc.same)
			if got, err := m.Get(t.Context(), later, "a"); err != nil || got != "id of a" || s.asked != tc.want {
				t.Errorf("%s: %q, %v, asked %d times, want %d", tc.reason, got, err, s.asked, tc.want)
			}
		})
	}
}

func TestMemoKeepsNoAnswerThatChangedWhileItWasRead(t *testing.T) {
	s := &countingServer{}
	m, _ := memoOf(s)
	s.during = func() { m.Changed("principal", "id of a", "updated") }
	for range 2 {
		if _, err := m.Get(context.Background(), time.Time{}, "a"); err != nil {
			t.Fatal(err)
		}
	}
	if s.asked != 2 {
		t.Errorf("asked %d times: an answer that may be from before the change was kept", s.asked)
	}
}

func TestMemoKeepsNoFailure(t *testing.T) {
	s := &countingServer{err: errors.New("down")}
	m, _ := memoOf(s)
	if _, err := m.Get(context.Background(), time.Time{}, "a"); err == nil {
		t.Fatal("the failure is swallowed")
	}
	s.err = nil
	if _, err := m.Get(context.Background(), time.Time{}, "a"); err != nil {
		t.Errorf("a failure is remembered: %v", err)
	}
}

func TestMemoRechecksWhatTheFeedDoesNotTell(t *testing.T) {
	lost := errors.New("no answer")
	cases := map[string]struct {
		reason string
		feed   string
		event  func(*Memo[string], *countingServer)
		want   bool
		err    error
		asked  int // total number of requests
	}{
		"told by the feed":   {"nobody is asked in vain", "principal", func(*Memo[string], *countingServer) {}, false, nil, 1},
		"the same":           {"the same answer is no news", "", func(*Memo[string], *countingServer) {}, false, nil, 2},
		"another":            {"another answer is", "", func(_ *Memo[string], s *countingServer) { s.says = "another" }, true, nil, 2},
		"another since lost": {"what was void is still compared with", "", func(m *Memo[string], s *countingServer) { m.invalidate(); s.says = "another" }, true, nil, 2},
		"no answer":          {"no answer is no other answer", "", func(_ *Memo[string], s *countingServer) { s.err = lost }, false, lost, 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := &countingServer{}
			m, _ := memoOf(s)
			m.feed = tc.feed
			if _, err := m.Get(context.Background(), time.Time{}, "a"); err != nil {
				t.Fatal(err)
			}
			tc.event(m, s)
			got, err := m.recheck(context.Background())
			if got != tc.want || !errors.Is(err, tc.err) || s.asked != tc.asked {
				t.Errorf("%s: changed %v (%v), want %v (%v); asked %d times, want %d", tc.reason, got, err, tc.want, tc.err, s.asked, tc.asked)
			}
			if kept, _ := m.Last("a"); tc.want && kept != "another of a" {
				t.Errorf("%s: kept %q", tc.reason, kept)
			}
		})
	}
}

func TestVoidAnswerLastsOnlyWhereThereIsNoOther(t *testing.T) {
	s := &countingServer{}
	m, _ := memoOf(s)
	m.feed = ""
	for range 2 {
		if _, err := m.Get(context.Background(), time.Time{}, "a"); err != nil {
			t.Fatal(err)
		}
		m.invalidate()
	}
	if last, known := m.Last("a"); s.asked != 2 || !known || last != "id of a" {
		t.Errorf("asked %d times, want each time anew; the last answer is %q", s.asked, last)
	}
}

func TestMemoKnowsTheWholeByItsParts(t *testing.T) {
	s := &countingServer{}
	m, _ := memoOf(s)
	m.objectByPart, m.parts = map[string]string{}, func(string) []string { return []string{"part"} }
	if whole, _ := m.Changed("principal", "part", "updated"); whole != "" {
		t.Errorf("%q is known before anybody asked", whole)
	}
	// The first response is too old to be cached, but its parts are still recorded.
	s.during = func() { m.Changed("principal", "another", "updated"); s.during = nil }
	for range 2 { // before the second round, the response was discarded
		if _, err := m.Get(context.Background(), time.Time{}, "a"); err != nil {
			t.Fatal(err)
		}
		if whole, _ := m.Changed("principal", "part", "updated"); whole != "id of a" {
			t.Errorf("the part belongs to %q", whole)
		}
	}
	if whole, _ := m.Changed("role", "part", "updated"); whole != "" {
		t.Errorf("another kind's part belongs to %q", whole)
	}
	if s.asked != 2 {
		t.Errorf("asked %d times: a change of the part left the answer", s.asked)
	}
}

// TestMemoKnowsWhatItsOwnWritesHaveMade checks that the manager's creation of an object is no news once, and that later
// changes of the object are news.
func TestMemoKnowsWhatItsOwnWritesHaveMade(t *testing.T) {
	cases := map[string]struct {
		reason string
		made   bool
		action string
		news   bool
		asked  int
	}{
		"made":            {"the feed tells what is known", true, "created", false, 0},
		"made, changed":   {"what somebody does to it afterwards is asked for", true, "updated", true, 1},
		"made, deleted":   {"and that it is gone", true, "deleted", true, 1},
		"written":         {"a write of what was there is no creation", false, "updated", true, 1},
		"made by another": {"others wait for it, who have not asked", false, "created", true, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := &countingServer{}
			m, _ := memoOf(s)
			m.Put("a", "id of a", tc.made)
			if _, news := m.Changed("principal", "id of a", tc.action); news != tc.news {
				t.Errorf("%s: news is %t", tc.reason, news)
			}
			if _, err := m.Get(t.Context(), time.Time{}, "a"); err != nil || s.asked != tc.asked {
				t.Errorf("%s: asked %d times, want %d, %v", tc.reason, s.asked, tc.asked, err)
			}
		})
	}
}

func TestMemoKeepsNoReadingThatAWriteOvertook(t *testing.T) {
	s := &countingServer{says: "old"}
	m, _ := memoOf(s)
	s.during = func() { m.Put("a", "new of a", true) }
	if _, err := m.Get(t.Context(), time.Time{}, "a"); err != nil {
		t.Fatal(err)
	}
	if got, err := m.Get(t.Context(), time.Time{}, "a"); err != nil || got != "new of a" {
		t.Errorf("answers %q, %v", got, err)
	}
}
