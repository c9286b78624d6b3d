package reconcile

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/grants"
)

// scope returns the scope of an object. It has no operations if the object only observes or is being deleted.
func (r *reconciler[T, D]) scope(ctx context.Context, in Input, obj T, want *D) (grants.Scope, error) {
	reach, err := r.adapter.Scope(ctx, in, obj, want)
	if spec, _ := obj.Managed(); spec.ManagementPolicy == v1beta1.Observe || !obj.GetDeletionTimestamp().IsZero() {
		reach.Operations = nil
	}
	return reach, err
}

// checkDeclaredScope checks whether a grant covers what the fields of the object declare. It runs before any request to
// the key server.
func (r *reconciler[T, D]) checkDeclaredScope(ctx context.Context, p *pass[T, D]) error {
	reach, err := r.scope(ctx, p.in, p.obj, nil)
	if err != nil {
		return err
	}
	v, err := grants.Evaluate(ctx, r.Client, p.keyServer, p.obj.GetNamespace(), r.kind.Name, reach)
	if err != nil || v.Refusal == nil {
		return err
	}
	if p.facts.Owned != "" && !p.facts.Deleting {
		return connection.NewProblem(v.Refusal.Reason, "%s; until then the external object stays and can be used, but is not corrected", v.Refusal.Message)
	}
	return v.Refusal
}

// checkResolvedScope checks, before any write, whether a grant covers the
// resolved scope and the names found on the key server.
func (r *reconciler[T, D]) checkResolvedScope(ctx context.Context, p *pass[T, D]) error {
	reach, err := r.scope(ctx, p.in, p.obj, p.want)
	if err != nil {
		return err
	}
	reach.Names = slices.Concat(reach.Names, p.facts.External.Names)
	v, err := grants.Evaluate(ctx, r.Client, p.keyServer, p.obj.GetNamespace(), r.kind.Name, reach)
	if err != nil {
		return err
	}
	if v.Refusal != nil {
		return v.Refusal
	}
	p.facts.withhold(v.Grant)
	return nil
}

// withhold adds a Blocker against adoption if the grant does not allow adoption and the external object does not belong
// to this object already.
func (f *Facts) withhold(g *v1beta1.Grant) {
	has := f.External.ID == f.Owned || f.resumes() || f.supersedes(f.External.ID) || f.ownedBySelf()
	if g.Adopt || has || f.Adoption == v1beta1.AdoptNever {
		return
	}
	f.External.Blockers = append(f.External.Blockers, Blocker{
		Rule: "ungranted", When: Present, Reason: v1beta1.ReasonAccessDenied,
		Message: fmt.Sprintf("%s exists already, and grant %q of the KeyServer does not allow adoption; "+
			"ask an administrator of the KeyServer to set adopt in the grant, or set managementPolicy to Observe", f.External.What, g.Name),
	})
}

// granted reports whether a grant covers what the fields of the object declare. It returns false if the KeyServer does
// not exist.
func (r *reconciler[T, D]) granted(ctx context.Context, obj T) (bool, error) {
	spec, _ := obj.Managed()
	ks := &v1beta1.KeyServer{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: spec.KeyServerRef.Name}, ks); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	reach, err := r.scope(ctx, Input{Cluster: r.Client, Sources: r.sources, Issuer: r.Issuer, Now: r.Clock.Now()}, obj, nil)
	if err != nil {
		return true, nil //nolint:nilerr // its scope is unknown: it blocks the deletion
	}
	v, err := grants.Evaluate(ctx, r.Client, ks, obj.GetNamespace(), r.kind.Name, reach)
	return v.Grant != nil, err
}

// covered reports whether a grant covers what the fields of another object declare. adopts means that this grant allows
// adoption.
func (r *reconciler[T, D]) covered(ctx context.Context, p *pass[T, D], other T) (is, adopts bool, err error) {
	reach, err := r.scope(ctx, p.in, other, nil)
	if err != nil {
		return false, false, err
	}
	v, err := grants.Evaluate(ctx, r.Client, p.keyServer, other.GetNamespace(), r.kind.Name, reach)
	return v.Grant != nil, v.Grant != nil && v.Grant.Adopt, err
}
