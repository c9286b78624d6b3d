package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
)

// ErrUnsettled is returned for an object whose last change was not answered. Change does not change the object until
// Compare is called, because two unanswered changes could not be distinguished.
var ErrUnsettled = errors.New("the last change of the object was not answered")

// Objects is the state of objects that their clients expect. The value of a missing object is "". Each object is
// changed by one client only. The zero value is ready for use. Objects is safe for concurrent use.
type Objects struct {
	mu    sync.Mutex
	known map[string]*object
}

type object struct {
	value    string
	pending  *Change // nil if each change was answered
	compared bool    // no change since the last comparison
}

// Change is a change without an answer. It is unknown whether it took effect.
type Change struct {
	Name, Value string
	Requests    []string // ids of the requests of the change
}

// Change calls ask, which changes an object to the value, and records the outcome.
func (o *Objects) Change(ctx context.Context, name, value string, ask func(context.Context) error) error {
	o.mu.Lock()
	one := o.object(name)
	if one.pending != nil {
		o.mu.Unlock()
		return ErrUnsettled
	}
	one.compared = false
	o.mu.Unlock()

	var call Call
	err := ask(call.In(ctx))
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil:
		one.value = value
	case client.IsUnavailable(err):
		one.pending = &Change{name, value, call.IDs()}
	}
	return err
}

// object returns the entry of an object. The caller holds the lock.
func (o *Objects) object(name string) *object {
	one := o.known[name]
	if one == nil {
		one = &object{}
		if o.known == nil {
			o.known = map[string]*object{}
		}
		o.known[name] = one
	}
	return one
}

// Note records an acknowledged value of an object whose name the server chose.
func (o *Objects) Note(name, value string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	*o.object(name) = object{value: value}
}

// Value returns the last acknowledged value.
func (o *Objects) Value(name string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if one := o.known[name]; one != nil {
		return one.value
	}
	return ""
}

// Settled reports whether the outcome of each change of an object is known.
func (o *Objects) Settled(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	one := o.known[name]
	return one == nil || one.pending == nil
}

// Names returns sorted names: of all objects, or of those that changed since the last comparison.
func (o *Objects) Names(all bool) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var names []string
	for name, one := range o.known {
		if all || !one.compared {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Compare compares the recorded values with now, for the named objects and for all objects in now. Afterwards, now is
// the recorded state. A named object that is not in now does not exist. Compare returns the unanswered changes that
// took effect.
func (o *Objects) Compare(names []string, now map[string]string) (effects []Change, findings []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := map[string]string{}
	for _, name := range names {
		all[name] = ""
	}
	maps.Copy(all, now)
	for name, value := range all {
		one := o.object(name)
		allowed := []string{one.value}
		if one.pending != nil {
			allowed = append(allowed, one.pending.Value)
			if value != one.value && value == one.pending.Value {
				effects = append(effects, *one.pending)
			}
		}
		if !slices.Contains(allowed, value) {
			findings = append(findings, fmt.Sprintf("%s is %q, and by what was acknowledged it is one of %q", name, value, allowed))
		}
		*one = object{value: value, compared: true}
	}
	return effects, findings
}
