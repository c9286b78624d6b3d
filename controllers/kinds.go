package controllers

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
)

// adapters has one registration for each kind. Each file of a kind adds its own.
var adapters []registration

// registration hides the type parameters of an adapter.
type registration struct {
	kind     func() reconcile.Kind
	register func(*reconcile.Registry) error
}

// adapted adds an adapter to adapters.
func adapted[T reconcile.Object, D any](a reconcile.Adapter[T, D]) {
	adapters = append(adapters, registration{
		kind:     a.Kind,
		register: func(s *reconcile.Registry) error { return reconcile.Register(s, a) },
	})
}

// registerKinds creates the reconciler of each kind. A kind comes after the kinds for which it waits, so that a plan
// already knows their objects.
func registerKinds(s *reconcile.Registry) error {
	var kinds []reconcile.Kind
	register := map[string]func(*reconcile.Registry) error{}
	for _, k := range v1beta1.Kinds {
		if !k.Managed() {
			continue
		}
		i := slices.IndexFunc(adapters, func(a registration) bool { return a.kind().Name == k.Name })
		if i < 0 {
			return fmt.Errorf("kind %s has no adapter", k.Name)
		}
		kinds = append(kinds, adapters[i].kind())
		register[k.Name] = adapters[i].register
	}
	if len(kinds) != len(adapters) {
		return fmt.Errorf("there are %d adapters for %d kinds", len(adapters), len(kinds))
	}
	for _, k := range inOrder(kinds) {
		if err := register[k.Name](s); err != nil {
			return err
		}
	}
	return nil
}

// parseID parses the id in an object's status or spec, for a request.
func parseID[ID any](parse func(string) (ID, error), text string) (ID, error) {
	id, err := parse(text)
	if err != nil {
		return id, connection.NewProblem(v1beta1.ReasonInvalidSpec, "the id of the object on the key server, %q, %s", text, err)
	}
	return id, nil
}

// inOrder sorts each kind after the kinds for which it waits. Otherwise the order does not change.
func inOrder(kinds []reconcile.Kind) []reconcile.Kind {
	var after func(k reconcile.Kind, way []string) int
	after = func(k reconcile.Kind, way []string) (depth int) {
		for _, other := range kinds {
			// Two kinds that wait for each other get the same depth.
			if slices.Contains(k.Awaits, other.Feed) && !slices.Contains(way, other.Feed) {
				depth = max(depth, 1+after(other, append(way, other.Feed)))
			}
		}
		return depth
	}
	ordered := slices.Clone(kinds)
	slices.SortStableFunc(ordered, func(a, b reconcile.Kind) int {
		return cmp.Compare(after(a, []string{a.Feed}), after(b, []string{b.Feed}))
	})
	return ordered
}
