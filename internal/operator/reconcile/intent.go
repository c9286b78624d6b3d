package reconcile

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
)

// PlannedAction is what the manager would do next about an object.
type PlannedAction string

// The planned actions.
const (
	PlanCreate  PlannedAction = "create"  // make the external object
	PlanUpdate  PlannedAction = "update"  // correct it
	PlanAdopt   PlannedAction = "adopt"   // take it over as it is; the key server does not change
	PlanDelete  PlannedAction = "delete"  // delete it, or one that it has replaced
	PlanNone    PlannedAction = "none"    // nothing
	PlanBlocked PlannedAction = "blocked" // something stands in the way; the reason says what
)

// Writes reports whether the key server changes by it.
func (a PlannedAction) Writes() bool { return a == PlanCreate || a == PlanUpdate || a == PlanDelete }

// Intent is what the manager would do next about one object, and why.
type Intent struct {
	Object  client.Object // with the status that the manager would write first
	Kind    string
	Action  PlannedAction
	Reason  v1alpha1.Reason
	Message string
	// What names the external object, for people; ID is its id where it exists.
	What string
	ID   string
	// Drift lists what differs, where the external object exists.
	Drift []v1alpha1.FieldDrift
	// WaitsFor names the objects of the plan that have to be dealt with first.
	WaitsFor []string
	// Needs are the keys of what the object needs, Provides of what others may
	// need and would be there once the intent is carried out.
	Needs    []string
	Provides []string
	// Calls are the writes that were refused, by method and path: the first of
	// each action, since what follows it depends on its answer.
	Calls []string
}

// Plan implements Controller. The pass goes to its end, so that the object says
// what it would say then; that it writes nothing is up to the connections and
// the cluster that the reconciler was made with.
func (r *reconciler[T, D]) Plan(ctx context.Context, at types.NamespacedName) (*Intent, error) {
	p, d, err := r.consider(ctx, at)
	if err != nil || p == nil {
		return nil, err
	}
	i := intentOf(r.kind.Name, p.obj, d, p.facts)
	i.Provides = r.coming(p, i)
	if _, err := r.carryOut(ctx, p, d); err != nil {
		return nil, err
	}
	if c, needs := any(r.adapter).(Consumer[T]); needs {
		for _, n := range c.Needs(p.obj) {
			i.Needs = append(i.Needs, n.Key)
		}
	}
	return i, r.succession(ctx, p, i)
}

// coming returns the keys that the object would provide if the intent had been
// carried out, and does not provide yet.
func (r *reconciler[T, D]) coming(p *pass[T, D], i *Intent) []string {
	prov, is := any(r.adapter).(Provider[T])
	if !is || i.Action == PlanNone || i.Action == PlanAdopt {
		return nil
	}
	then := copyOf(p.obj)
	if p.want != nil {
		r.adapter.Record(then, p.want, External{Exists: true, ID: "planned"}, true, p.facts.Now)
	}
	return prov.Provides(then)
}

// intentOf says what a decision comes to.
func intentOf(kind string, obj client.Object, d Decision, f Facts) *Intent {
	i := &Intent{
		Object: obj, Kind: kind, Reason: d.Reason, Message: d.Message,
		What: f.External.What, Drift: f.External.Drift, Action: PlanBlocked,
	}
	if f.External.Exists {
		i.ID = f.External.ID
	}
	switch d.Action {
	case actCreate:
		i.Action = PlanCreate
	case actUpdate:
		i.Action = PlanUpdate
		if f.External.ID != f.Owned {
			i.Message = "taking over and " + i.Message
		}
	case actAdopt:
		i.Action, i.Message = PlanAdopt, "taking over as it is: "+f.External.Evidence
	case actDelete, actRetire:
		i.Action = PlanDelete
	case actForget, ActRelease, actClaim:
		i.Action = PlanNone
	case actReport:
		switch {
		case d.Foretells: // what the deletion takes with it is said first
			i.Action = PlanDelete
		case d.Reason == v1alpha1.ReasonVerified, d.Reason == v1alpha1.ReasonDrifted:
			i.Action = PlanNone
		}
	default: // actWait: a reading under change
		i.Reason = v1alpha1.ReasonProgressing
		if f.Obstacle != nil {
			i.Message = f.Obstacle.Message
		}
	}
	return i
}

// succession has the intent say what becomes of the external object that the
// action replaces. Where it is removed, not even taking over leaves the key
// server as it is.
func (r *reconciler[T, D]) succession(ctx context.Context, p *pass[T, D], i *Intent) error {
	claim := p.facts.External.Replaces
	if claim == "" || (i.Action != PlanCreate && i.Action != PlanAdopt) {
		return nil
	}
	others, err := r.claimants(ctx, p, []string{claim})
	if err != nil {
		return err
	}
	replaced := Superseded{ID: p.facts.Owned, Provenance: p.facts.Provenance}
	if len(others) > 0 {
		replaced.ClaimedBy = r.name(others[0].object)
	}
	i.Message += "; it replaces " + replaced.ID
	if p.facts.dispose(replaced).Action == actForget {
		i.Message += ", which stays"
		return nil
	}
	i.Message += ", which is removed after the overlap"
	if i.Action == PlanAdopt {
		i.Action, i.Reason = PlanUpdate, v1alpha1.ReasonProgressing
	}
	return nil
}
