package crash

import (
	"errors"
	"slices"
	"sync"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
)

// ledger is what the clients know of the server's state: what was acknowledged,
// and what was asked for and never answered, which may or may not have happened.
type ledger struct {
	mu    sync.Mutex
	facts map[string]*fact
}

// fact is the state of one object. "" is that it is not there.
type fact struct {
	value   string
	pending []string
	checked bool // read back since it last changed
}

func newLedger() *ledger { return &ledger{facts: map[string]*fact{}} }

// errUnanswered ends a client's round: the server is gone.
var errUnanswered = errors.New("no answer")

// change asks for a new value of an object that no other client touches.
func (l *ledger) change(name, value string, ask func() error) error {
	l.mu.Lock()
	f := l.facts[name]
	if f == nil {
		f = &fact{}
		l.facts[name] = f
	}
	f.pending, f.checked = append(f.pending, value), false
	l.mu.Unlock()

	err := ask()
	if client.IsUnavailable(err) {
		return errUnanswered
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f.pending = nil
	if err == nil {
		f.value = value
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

// names lists the objects: all of them, or those that changed since they were
// last read back.
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

// settle compares one object with what the server says now and takes that
// over. It answers what was allowed where the server says something else.
func (l *ledger) settle(name, now string) (allowed []string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.facts[name]
	if f == nil {
		f = &fact{}
		l.facts[name] = f
	}
	allowed = append([]string{f.value}, f.pending...)
	f.value, f.pending, f.checked = now, nil, true
	return allowed, slices.Contains(allowed, now)
}
