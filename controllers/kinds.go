package controllers

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
)

// adapters of the kinds. Each is added by its own file.
var adapters []registration

// registration is an adapter without its type parameters.
type registration struct {
	kind     func() reconcile.Kind
	register func(*reconcile.Registry) error
}

// adapted adds an adapter.
func adapted[T reconcile.Object, D any](a reconcile.Adapter[T, D]) {
	adapters = append(adapters, registration{
		kind:     a.Kind,
		register: func(s *reconcile.Registry) error { return reconcile.Register(s, a) },
	})
}

// registerKinds creates the reconciler of each kind. Kinds that
// others wait for come first, so that a plan knows their objects.
func registerKinds(s *reconcile.Registry) error {
	var kinds []reconcile.Kind
	register := map[string]func(*reconcile.Registry) error{}
	for _, k := range v1alpha1.Kinds {
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

// parseID parses an id that an object has as text, for a request about it.
func parseID[ID any](parse func(string) (ID, error), text string) (ID, error) {
	id, err := parse(text)
	if err != nil {
		return id, connection.NewProblem(v1alpha1.ReasonInvalidSpec, "the id of the object on the key server, %q, %s", text, err)
	}
	return id, nil
}

// inOrder sorts kinds after the kinds that they wait for.
// Kinds that do not wait for each other keep their order.
func inOrder(kinds []reconcile.Kind) []reconcile.Kind {
	var after func(k reconcile.Kind, way []string) int
	after = func(k reconcile.Kind, way []string) (depth int) {
		for _, other := range kinds {
			// Kinds that wait for each other have the same depth.
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
