package reconcile

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

// PlannedAction is the next action of the manager for an object.
type PlannedAction string

// The planned actions.
const (
	PlanCreate  PlannedAction = "create"  // create the external object
	PlanUpdate  PlannedAction = "update"  // corrects the external object
	PlanAdopt   PlannedAction = "adopt"   // takes over the external object without changing the key server
	PlanDelete  PlannedAction = "delete"  // deletes the external object, or one that it has replaced
	PlanNone    PlannedAction = "none"    // no action is necessary
	PlanBlocked PlannedAction = "blocked" // the action is blocked for the reason in Intent.Reason
)

// Writes reports whether the action changes the key server.
func (a PlannedAction) Writes() bool { return a == PlanCreate || a == PlanUpdate || a == PlanDelete }

// Intent is the next action of the manager for one object, and why.
type Intent struct {
	Object  client.Object // the object with the status that the manager would write first
	Kind    string
	Action  PlannedAction
	Reason  v1beta1.Reason
	Message string
	// What describes the external object for messages. ID is empty if the external object does not exist.
	What string
	ID   string
	// Drift lists the differences of an existing external object.
	Drift []v1beta1.FieldDrift
	// WaitsFor lists the objects of the plan that must be created or changed first.
	WaitsFor []string
	// Needs are the keys that the object needs. Provides are the keys that it provides after the action.
	Needs    []string
	Provides []string
	// Calls are the writes that the plan has blocked, by method and path. Only the first write of each action is listed,
	// because later writes depend on its response.
	Calls []string
}

// Plan implements Controller. It runs a complete pass, so that the object gets the status that the manager would write.
// The caller must provide connections and a cluster client that block writes.
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
		case d.AnnouncesDeletion: // the status announces the deletion first
			i.Action = PlanDelete
		case d.Reason == v1beta1.ReasonVerified, d.Reason == v1beta1.ReasonDrifted:
			i.Action = PlanNone
		}
	default: // actWait: the obstacle is temporary
		i.Reason = v1beta1.ReasonProgressing
		if f.Problem != nil {
			i.Message = f.Problem.Message
		}
	}
	return i
}

// succession adds to the message what happens to the external object that the action replaces. An adoption that removes
// the replaced external object counts as an update, because it changes the key server.
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
		i.Action, i.Reason = PlanUpdate, v1beta1.ReasonProgressing
	}
	return nil
}
