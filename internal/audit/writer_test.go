package audit_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

const deadline = 10 * time.Second

// liar is a database that fails on demand, in ways in which a real database cannot be made to fail. Package sqlstore
// tests the writer on real databases.
type liar struct {
	mu      sync.Mutex
	rows    []keyserver.AuditEntry
	head    audit.Head
	claims  int
	failing func(n int) error // result of append n; if lying is set, a failed append stores the rows anyway
	lying   bool
	lost    bool // the claim is lost: Head fails until the next claim
	appends int

	entered chan struct{} // gets a value at the start of each append
	pass    chan struct{} // if not nil, each append waits for a value
}

func (l *liar) ClaimChain(context.Context) (audit.Chain, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claims++
	l.lost = false
	return l, nil
}

func (l *liar) Head(context.Context) (audit.Head, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost {
		return audit.Head{}, errors.New("lost")
	}
	return l.head, nil
}

func (l *liar) Append(_ context.Context, after audit.Head, rows []keyserver.AuditEntry, seal func(int64) audit.Head) error {
	if l.entered != nil {
		l.entered <- struct{}{}
	}
	if l.pass != nil {
		<-l.pass
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.appends++
	if l.lost {
		return errors.New("lost")
	}
	if after != l.head {
		return errors.New("the chain does not end there")
	}
	head := seal(int64(len(l.rows)) + 1)
	var err error
	if l.failing != nil {
		err = l.failing(l.appends)
	}
	if err == nil || l.lying {
		l.rows = append(l.rows, rows...)
		l.head = head
	}
	return err
}

func (l *liar) Release() error { return nil }

func (l *liar) operations() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := []string{}
	for _, r := range l.rows {
		names = append(names, r.Operation)
	}
	return names
}

func (l *liar) AuditSnapshot(context.Context) (audit.Snapshot, error) {
	n := int64(len(l.rows))
	return audit.Snapshot{LastSeq: n, MaxSeq: n, Heads: []audit.Head{l.head}}, nil
}

func (l *liar) AuditRange(_ context.Context, after, last int64, limit int) ([]keyserver.AuditEntry, error) {
	return l.rows[after:min(last, after+int64(limit))], nil
}

func newWriter(t *testing.T, store audit.Store, options audit.Options) *audit.Writer {
	t.Helper()
	w, err := audit.NewWriter(t.Context(), store, options)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func named(operation string) keyserver.AuditEntry { return keyserver.AuditEntry{Operation: operation} }

func intact(t *testing.T, trail audit.Reader) {
	t.Helper()
	report, err := audit.Verify(t.Context(), trail)
	if err != nil || !report.Intact() {
		t.Errorf("the chain is broken: %+v, %v", report, err)
	}
}

func TestNoCommitNoSuccess(t *testing.T) {
	cause := errors.New("disk full")
	cases := map[string]struct {
		reason string
		store  *liar
		want   []string
		claims int
	}{
		"Failed":  {"a commit that failed leaves nothing", &liar{}, []string{"second"}, 1},
		"Unknown": {"one whose answer was lost may have left the row, and the chain goes on behind it", &liar{lying: true}, []string{"first", "second"}, 1},
	}
	for name, tc := range cases {
		tc.store.failing = func(n int) error {
			if n == 1 {
				return cause
			}
			return nil
		}
		w := newWriter(t, tc.store, audit.Options{})
		err := w.Write(t.Context(), named("first"))
		f := fault.As(err)
		if f == nil || f.Code != fault.AuditUnavailable || f.Scope != fault.ScopeProcess || !f.Retryable || f.RetryAfter != time.Second || !errors.Is(err, cause) {
			t.Errorf("%s: %s: got %#v", name, tc.reason, err)
		}
		if strings.Contains(err.Error(), cause.Error()) {
			t.Errorf("%s: the caller sees the cause: %v", name, err)
		}
		if err := w.Write(t.Context(), named("second")); err != nil {
			t.Errorf("%s: %s: %v", name, tc.reason, err)
		}
		closeOf(t, w)
		if diff := cmp.Diff(tc.want, tc.store.operations()); diff != "" {
			t.Errorf("%s: %s: %s", name, tc.reason, diff)
		}
		if tc.store.claims != tc.claims {
			t.Errorf("%s: claimed %d times, want %d", name, tc.store.claims, tc.claims)
		}
		intact(t, tc.store)
	}
}

// TestNotedHeads checks that a saved head of the hash chain detects an audit log in which all hashes were computed
// again.
func TestNotedHeads(t *testing.T) {
	store := &liar{}
	w := newWriter(t, store, audit.Options{Batch: 1})
	var noted []audit.Head
	for range 3 {
		if err := w.Write(t.Context(), named("row")); err != nil {
			t.Fatal(err)
		}
		noted = append(noted, store.head)
	}
	closeOf(t, w)
	other := noted[1]
	other.Hash[0] ^= 1
	beyond := noted[2]
	beyond.Position++
	for name, tc := range map[string]struct {
		expected []audit.Head
		findings int
	}{
		"None": {nil, 0}, "All": {noted, 0}, "Twice": {[]audit.Head{noted[0], noted[0]}, 0},
		"Other": {[]audit.Head{noted[0], other}, 1}, "Beyond": {[]audit.Head{beyond}, 1}, "NoChain": {[]audit.Head{{Chain: 9, Position: 1}}, 1},
	} {
		report, err := audit.Verify(t.Context(), store, tc.expected...)
		if err != nil || report.Total != tc.findings {
			t.Errorf("%s: %d findings, want %d: %+v, %v", name, report.Total, tc.findings, report.Findings, err)
		}
		if diff := cmp.Diff([]audit.Head{noted[2]}, report.Heads); diff != "" {
			t.Errorf("%s: heads: %s", name, diff)
		}
	}
}

func TestLostClaim(t *testing.T) {
	store := &liar{}
	store.failing = func(n int) error {
		if n == 1 {
			store.lost = true
			return errors.New("connection lost")
		}
		return nil
	}
	w := newWriter(t, store, audit.Options{})
	if err := w.Write(t.Context(), named("first")); err == nil {
		t.Error("a lost connection is no commit")
	}
	if err := w.Write(t.Context(), named("second")); err != nil {
		t.Error(err)
	}
	closeOf(t, w)
	if store.claims != 2 {
		t.Errorf("a chain whose claim is lost is claimed anew: %d claims", store.claims)
	}
	intact(t, store)
}

// TestClaimLostInSilence checks that the writer detects before the next row that its claim was lost during a pause, so
// that no operation is refused.
func TestClaimLostInSilence(t *testing.T) {
	store := &liar{}
	now := time.Now()
	w := newWriter(t, store, audit.Options{Clock: func() time.Time { return now }})
	names := []string{"first", "second", "third"}
	for i, name := range names {
		if err := w.Write(t.Context(), named(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		store.mu.Lock()
		store.lost = true
		store.mu.Unlock()
		now = now.Add([]time.Duration{time.Minute, -time.Hour, 0}[i]) // the clock may be set in the meantime
	}
	closeOf(t, w)
	if !slices.Equal(store.operations(), names) || store.claims != len(names) {
		t.Errorf("%d claims, and the rows are %q", store.claims, store.operations())
	}
	intact(t, store)
}

func TestFullQueue(t *testing.T) {
	store := &liar{entered: make(chan struct{}, 16), pass: make(chan struct{})}
	w := newWriter(t, store, audit.Options{Queue: 1, Batch: 1})
	results := make(chan error, 3)
	write := func() { results <- w.Write(t.Context(), named("row")) }
	go write()
	<-store.entered
	go write() // the queue has space for one of these two
	go write()
	err := <-results
	if f := fault.As(err); f == nil || f.Code != fault.Overloaded || f.Scope != fault.ScopeProcess || !f.Retryable {
		t.Errorf("a full queue: got %v", err)
	}
	close(store.pass)
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	closeOf(t, w)
	if diff := cmp.Diff([]string{"row", "row"}, store.operations()); diff != "" {
		t.Error(diff)
	}
}

func TestContextEnds(t *testing.T) {
	store := &liar{entered: make(chan struct{}, 16), pass: make(chan struct{})}
	w := newWriter(t, store, audit.Options{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Write(ended, named("before")); !errors.Is(err, context.Canceled) {
		t.Errorf("before it is queued: %v", err)
	}
	first := make(chan error, 1)
	go func() { first <- w.Write(t.Context(), named("first")) }()
	<-store.entered
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := w.Write(ctx, named("queued")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while it is queued: %v", err)
	}
	committing, cancel := context.WithCancel(t.Context())
	others := make(chan error, 2)
	for range 2 {
		go func() { others <- w.Write(committing, named("in the commit")) }()
	}
	for w.Queued() < 3 { // the queue also contains the abandoned row
		time.Sleep(time.Millisecond)
	}
	store.pass <- struct{}{}
	if err := <-first; err != nil {
		t.Error(err)
	}
	<-store.entered
	cancel()
	if err := <-others; !errors.Is(err, context.Canceled) {
		t.Errorf("during the commit nobody knows: %v", err)
	}
	select {
	case err := <-others:
		t.Errorf("who commits for others goes away: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	close(store.pass)
	if err := <-others; err != nil {
		t.Errorf("who commits knows what became of it: %v", err)
	}
	closeOf(t, w)
	if diff := cmp.Diff([]string{"first", "in the commit", "in the commit"}, store.operations()); diff != "" {
		t.Errorf("nobody waited for the row in the queue, so it must not say that something was allowed: %s", diff)
	}
}

// TestBegin checks that Begin starts a row without waiting, and that it fails if rows cannot be written.
func TestBegin(t *testing.T) {
	store := &liar{}
	broken := errors.New("disk full")
	store.failing = func(n int) error {
		if n == 2 || n == 3 {
			return broken
		}
		return nil
	}
	w := newWriter(t, store, audit.Options{})
	begin := func(operation string) (func() error, error) { return w.Begin(t.Context(), named(operation)) }
	durable, err := begin("first")
	if err != nil {
		t.Fatal(err)
	}
	for len(store.operations()) == 0 { // otherwise, the process would end before the commit
		time.Sleep(time.Millisecond)
	}
	if err := durable(); err != nil {
		t.Errorf("a row that is there: %v", err)
	}
	if durable, err = begin("lost"); err != nil {
		t.Fatal(err)
	}
	if err := durable(); fault.CodeOf(err) != fault.AuditUnavailable {
		t.Errorf("a row that is lost: %v", err)
	}
	if _, err := begin("not begun"); fault.CodeOf(err) != fault.AuditUnavailable {
		t.Errorf("while rows are lost: %v", err)
	}
	if durable, err = begin("begun again"); err != nil || durable() != nil {
		t.Errorf("rows can be written, and now it is known: %v", err)
	}
	closeOf(t, w)
	if _, err := begin("late"); fault.CodeOf(err) != fault.AuditUnavailable {
		t.Errorf("a closed writer: %v", err)
	}
	if diff := cmp.Diff([]string{"first", "begun again"}, store.operations()); diff != "" {
		t.Error(diff)
	}
	intact(t, store)
}

// TestGivenUp checks that abandoned rows do not stay in the queue.
func TestGivenUp(t *testing.T) {
	store := &liar{entered: make(chan struct{}, 16), pass: make(chan struct{})}
	w := newWriter(t, store, audit.Options{Queue: 2, Batch: 1})
	first := make(chan error, 1)
	go func() { first <- w.Write(t.Context(), named("first")) }()
	<-store.entered
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var given sync.WaitGroup
	for range 2 {
		given.Go(func() {
			if err := w.Write(ctx, named("given up")); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
	given.Wait()
	close(store.pass)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if err := w.Write(t.Context(), named("next")); err != nil {
		t.Errorf("nobody waits: %v", err)
	}
	closeOf(t, w)
	if diff := cmp.Diff([]string{"first", "next"}, store.operations()); diff != "" {
		t.Error(diff)
	}
}

// A panic in a commit only affects the caller that commits.
func TestPanic(t *testing.T) {
	store := &liar{failing: func(n int) error {
		if n == 1 {
			panic("the first")
		}
		return nil
	}}
	w := newWriter(t, store, audit.Options{})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is gone")
			}
		}()
		_ = w.Write(t.Context(), named("first")) // it panics
	}()
	if err := w.Write(t.Context(), named("second")); err != nil {
		t.Error(err)
	}
	closeOf(t, w)
	if diff := cmp.Diff([]string{"second"}, store.operations()); diff != "" {
		t.Error(diff)
	}
	intact(t, store)
}

func TestClose(t *testing.T) {
	store := &liar{entered: make(chan struct{}, 64), pass: make(chan struct{})}
	w := newWriter(t, store, audit.Options{Batch: 4})
	const rows = 20
	results := make(chan error, rows)
	for range rows {
		go func() { results <- w.Write(t.Context(), named("row")) }()
	}
	<-store.entered
	go func() {
		time.Sleep(20 * time.Millisecond)
		close(store.pass)
	}()
	closeOf(t, w)
	written := 0
	for range rows {
		switch err := <-results; {
		case err == nil:
			written++
		case fault.CodeOf(err) != fault.AuditUnavailable:
			t.Error(err)
		}
	}
	if got := len(store.operations()); got != written {
		t.Errorf("%d callers were told yes, %d rows are there", written, got)
	}
	if err := w.Write(t.Context(), named("late")); fault.CodeOf(err) != fault.AuditUnavailable {
		t.Errorf("a closed writer: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	intact(t, store)
}

// TestTextsAreCleaned checks that a caller's text cannot make the database refuse the
// batch of other callers.
func TestTextsAreCleaned(t *testing.T) {
	store := &liar{}
	w := newWriter(t, store, audit.Options{})
	long := strings.Repeat("ü", 10_000)
	for _, name := range []string{"a\x00b", "a\xffb", long, strings.Repeat("\x00", 10_000), "fine ü"} {
		if err := w.Write(t.Context(), keyserver.AuditEntry{Filename: name}); err != nil {
			t.Error(err)
		}
	}
	closeOf(t, w)
	got := []string{}
	for _, r := range store.rows {
		if len(r.Filename) > 4096 {
			t.Errorf("%d bytes are over the bound", len(r.Filename))
		}
		got = append(got, r.Filename[:min(len(r.Filename), 7)])
	}
	if diff := cmp.Diff([]string{"a\uFFFDb", "a\uFFFDb", "üüü\xc3", "\uFFFD\uFFFD\xef", "fine ü"}, got); diff != "" {
		t.Error(diff)
	}
	intact(t, store)
}

func closeOf(t *testing.T, w *audit.Writer) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- w.Close() }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(deadline):
		t.Fatal("Close does not end")
	}
}

// TestWriteAll checks that one commit contains all rows of a call or none, even if there are many, and that it may also
// contain other waiting rows.
func TestWriteAll(t *testing.T) {
	rows := func(operation string, n int) []keyserver.AuditEntry {
		list := make([]keyserver.AuditEntry, n)
		for i := range list {
			list[i] = named(operation)
		}
		return list
	}
	l := &liar{failing: func(n int) error {
		if n == 3 {
			return errors.New("the disk is full")
		}
		return nil
	}}
	w := newWriter(t, l, audit.Options{Batch: 4})
	for i, step := range []struct {
		rows    int
		fails   bool
		appends int
	}{{0, false, 0}, {10, false, 1}, {1, false, 2}, {10, true, 3}, {2, false, 4}} {
		err := w.WriteAll(t.Context(), rows("many", step.rows))
		if (err != nil) != step.fails || l.appends != step.appends {
			t.Errorf("step %d: %v after %d commits", i, err, l.appends)
		}
	}
	if err := w.Write(t.Context(), named("one")); err != nil { // this waiter is reused and had several rows before
		t.Error(err)
	}
	if got := len(l.operations()); got != 10+1+2+1 {
		t.Errorf("%d rows", got)
	}
	intact(t, l)
	closeOf(t, w)
	if err := w.WriteAll(t.Context(), rows("late", 2)); fault.CodeOf(err) != fault.AuditUnavailable {
		t.Errorf("after the end: %v", err)
	}
}
