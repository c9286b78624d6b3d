package chaos

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
)

// ledger is what the clients of a site know of its state: what was acknowledged, and
// what was asked for and never answered, which may or may not have happened.
type ledger struct {
	mu    sync.Mutex
	facts map[string]*fact
}

// fact is the state of one object, which one client changes. "" is that it is not there.
type fact struct {
	value   string
	pending []attempt
	checked bool // read back since it last changed
}

// attempt is a change that was not answered, and the requests that asked for it.
type attempt struct {
	value, operation string
	requests         []string
}

func newLedger() *ledger { return &ledger{facts: map[string]*fact{}} }

// change asks for a new value of an object. While an attempt is without an answer the
// object is left alone: the next one would not tell which of the two was there.
func (l *ledger) change(ctx context.Context, name, value, operation string, ask func(context.Context) error) error {
	l.mu.Lock()
	f := l.facts[name]
	if f == nil {
		f = &fact{}
		l.facts[name] = f
	}
	if len(f.pending) > 0 {
		l.mu.Unlock()
		return errUnsettled
	}
	f.checked = false
	l.mu.Unlock()

	sent := &call{operation: operation}
	err := ask(sent.in(ctx))
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		f.value = value
	case client.IsUnavailable(err):
		f.pending = append(f.pending, attempt{value, operation, sent.ids()})
	}
	return err
}

// note enters a value that was acknowledged under a name that the server gave.
func (l *ledger) note(name, value string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.facts[name] = &fact{value: value}
}

func (l *ledger) value(name string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.facts[name]; f != nil {
		return f.value
	}
	return ""
}

// settled is whether nothing that was asked for an object is without its answer.
func (l *ledger) settled(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.facts[name]
	return f == nil || len(f.pending) == 0
}

// names lists the objects that changed since they were last read back, or all.
func (l *ledger) names(all bool) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := make([]string, 0, len(l.facts))
	for name, f := range l.facts {
		if all || !f.checked {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// settle compares an object with what the server says now, and takes that over. It
// answers what is wrong, and the attempt without an answer that was the one that took
// effect, if one was.
func (l *ledger) settle(name, now string) (took *attempt, wrong string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.facts[name]
	if f == nil {
		f = &fact{}
		l.facts[name] = f
	}
	allowed := []string{f.value}
	for i, a := range f.pending {
		allowed = append(allowed, a.value)
		if now == a.value && now != f.value {
			took = &f.pending[i]
		}
	}
	if !slices.Contains(allowed, now) {
		wrong = fmt.Sprintf("%s is %q, and by what was acknowledged it is one of %q", name, now, allowed)
	}
	f.value, f.pending, f.checked = now, nil, true
	return took, wrong
}
