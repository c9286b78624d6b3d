package reconcile

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
)

// PlannedAction is the next action of the manager for an object.
type PlannedAction string

// The planned actions.
const (
	PlanCreate  PlannedAction = "create"  // create the external object
	PlanUpdate  PlannedAction = "update"  // correct it
	PlanAdopt   PlannedAction = "adopt"   // take it over as it is; the key server does not change
	PlanDelete  PlannedAction = "delete"  // delete it, or one that it has replaced
	PlanNone    PlannedAction = "none"    // nothing
	PlanBlocked PlannedAction = "blocked" // the action is blocked; the reason says by what
)

// Writes reports whether the action changes the key server.
func (a PlannedAction) Writes() bool { return a == PlanCreate || a == PlanUpdate || a == PlanDelete }

// Intent is the next action of the manager for one object, with the reason.
type Intent struct {
	Object  client.Object // the object with the status that the manager would write first
	Kind    string
	Action  PlannedAction
	Reason  v1alpha1.Reason
	Message string
	// What names the external object in messages. ID is its id if it exists.
	What string
	ID   string
	// Drift lists the differences if the external object exists.
	Drift []v1alpha1.FieldDrift
	// WaitsFor names the objects of the plan that have to be handled first.
	WaitsFor []string
	// Needs are the keys that the object needs. Provides are the keys that others may need, and that exist after the
	// intent is carried out.
	Needs    []string
	Provides []string
	// Calls are the writes that were refused, by method and path. Only the first
	// write of each action is listed, since the later ones depend on its response.
	Calls []string
}

// Plan implements Controller. The pass runs completely, so that the object has the status that a real pass would give
// it. The connections and the cluster of the reconciler have to prevent writes.
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

// coming returns the keys that the object would provide after the intent is carried out. It returns nil if the intent
// does not change the external object.
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

// intentOf converts a decision to an intent.
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
		case d.AnnouncesDeletion: // the consequences are reported before the deletion
			i.Action = PlanDelete
		case d.Reason == v1alpha1.ReasonVerified, d.Reason == v1alpha1.ReasonDrifted:
			i.Action = PlanNone
		}
	default: // actWait: the obstacle is temporary
		i.Reason = v1alpha1.ReasonProgressing
		if f.Problem != nil {
			i.Message = f.Problem.Message
		}
	}
	return i
}

// succession adds to the message what happens to the external object that the action replaces. If the replaced object
// is removed, even an adoption changes the key server.
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
