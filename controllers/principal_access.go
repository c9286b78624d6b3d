package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/grants"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
)

// rolesDeclared returns the ids of the declared roles.
func rolesDeclared(ctx context.Context, in reconcile.Input, obj *v1beta1.Principal) ([]schema.HexID, error) {
	ids := []schema.HexID{}
	for _, r := range obj.Spec.Roles {
		key, what, err := roleNamed(ctx, in, obj, r)
		if err != nil {
			return nil, err
		}
		role, ok, err := roles.Of(in.Conn).Find(ctx, in.NotBefore, key)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, connection.NewProblem(v1beta1.ReasonDependencyNotReady, "spec.roles: KeyServer %q has no %s; %scorrect spec.roles, or create the role",
				in.Conn.Name, what, builtInLike(in.Conn, deref(r.Name)))
		}
		ids = append(ids, role.ID)
	}
	return asSet(ids), nil
}

// builtInLike returns a question about the built-in role with a similar name, or "". It does not suggest other roles,
// because the namespace may have no grant for them.
func builtInLike(c *connection.Connection, name string) string {
	var builtIn []string
	roles.Of(c).Each(func(r schema.Role) {
		if deref(r.BuiltIn) {
			builtIn = append(builtIn, r.Name)
		}
	})
	if near := nearest(name, builtIn); near != "" {
		return fmt.Sprintf("did you mean %q? Otherwise ", near)
	}
	return ""
}

// roleNamed returns the key that finds a declared role in a Listing, and a description of the role for messages.
func roleNamed(ctx context.Context, in reconcile.Input, obj *v1beta1.Principal, r v1beta1.PrincipalRole) (key, what string, err error) {
	if r.RoleRef == nil {
		return byName(deref(r.Name)), fmt.Sprintf("role %q", deref(r.Name)), nil
	}
	at := types.NamespacedName{Namespace: obj.Namespace, Name: r.RoleRef.Name}
	role := &v1beta1.Role{}
	if err := in.Cluster.Get(ctx, at, role); err != nil {
		return "", "", absent(err, "Role", at)
	}
	if err := sameKeyServer("Role", role, obj); err != nil {
		return "", "", err
	}
	if role.Status.RoleID == "" {
		return "", "", notThereYet("Role", at)
	}
	return role.Status.RoleID, "role of Role " + at.String(), nil
}

// groupsDeclared returns the ids of the declared groups.
func groupsDeclared(ctx context.Context, in reconcile.Input, obj *v1beta1.Principal) ([]schema.HexID, error) {
	ids := []schema.HexID{}
	for _, g := range obj.Spec.Groups {
		other, held, err := principalNamed(ctx, in, obj, g.PrincipalRef.Name)
		if err != nil {
			return nil, err
		}
		if other.Spec.Group == nil {
			return nil, connection.NewProblem(v1beta1.ReasonInvalidSpec, "spec.groups: Principal %s/%s is not a group; name a Principal with spec.group", obj.Namespace, other.Name)
		}
		if other.Status.Provenance == "" { // an object that only observes a group must not add members to it
			return nil, connection.NewProblem(v1beta1.ReasonDependencyNotReady,
				"spec.groups: Principal %s/%s has neither created nor adopted its group; let it manage the group, or ask the owner of the group to add this principal", obj.Namespace, other.Name)
		}
		ids = append(ids, held.ID)
	}
	return asSet(ids), nil
}

// delegatesDeclared returns the ids of the principals that may act for this one.
func delegatesDeclared(ctx context.Context, in reconcile.Input, obj *v1beta1.Principal) ([]schema.HexID, error) {
	ids := []schema.HexID{}
	for _, d := range obj.Spec.Delegation.Delegates {
		if d.PrincipalRef.Name == obj.Name {
			return nil, connection.NewProblem(v1beta1.ReasonInvalidSpec, "spec.delegation.delegates: a principal cannot be its own delegate; remove this object from the list")
		}
		other, held, err := principalNamed(ctx, in, obj, d.PrincipalRef.Name)
		if err != nil {
			return nil, err
		}
		if other.Spec.Group != nil {
			return nil, connection.NewProblem(v1beta1.ReasonInvalidSpec, "spec.delegation.delegates: Principal %s/%s is a group, and a delegate must be able to log in; remove it", obj.Namespace, other.Name)
		}
		ids = append(ids, held.ID)
	}
	return asSet(ids), nil
}

// principalNamed resolves a Principal of the same namespace to the principal on the key server.
func principalNamed(ctx context.Context, in reconcile.Input, obj *v1beta1.Principal, name string) (*v1beta1.Principal, schema.Principal, error) {
	at := types.NamespacedName{Namespace: obj.Namespace, Name: name}
	other := &v1beta1.Principal{}
	if err := in.Cluster.Get(ctx, at, other); err != nil {
		return nil, schema.Principal{}, absent(err, "Principal", at)
	}
	if err := sameKeyServer("Principal", other, obj); err != nil {
		return nil, schema.Principal{}, err
	}
	if other.Status.PrincipalID == "" {
		return nil, schema.Principal{}, notThereYet("Principal", at)
	}
	held, err := principalsByID.Of(in.Conn).Get(ctx, in.NotBefore, other.Status.PrincipalID)
	if connection.IsGone(err) {
		err = notThereYet("Principal", at)
	}
	return other, held, err
}

// absent converts a not-found error to a problem. Other errors come from the cluster and stay unchanged.
func absent(err error, kind string, at types.NamespacedName) error {
	if apierrors.IsNotFound(err) {
		return connection.NewProblem(v1beta1.ReasonDependencyNotReady, "%s %s does not exist", kind, at)
	}
	return fmt.Errorf("read %s %s: %w", kind, at, err)
}

func notThereYet(kind string, at types.NamespacedName) error {
	return connection.NewProblem(v1beta1.ReasonDependencyNotReady, "%s %s is not on the key server yet; see its conditions", kind, at)
}

// sameKeyServer returns an error if the two objects refer to different KeyServers.
func sameKeyServer(kind string, other, obj reconcile.Object) error {
	its, _ := other.Managed()
	mine, _ := obj.Managed()
	if its.KeyServerRef == mine.KeyServerRef {
		return nil
	}
	return connection.NewProblem(v1beta1.ReasonInvalidSpec, "%s refers to KeyServer %q, but this object refers to KeyServer %q; use the same keyServerRef in both",
		reconcile.NameOf(kind, other), its.KeyServerRef.Name, mine.KeyServerRef.Name)
}

// grantedOperations returns the operations that the roles of the principal and of its groups grant. References that
// cannot be resolved are skipped.
func grantedOperations(ctx context.Context, in reconcile.Input, obj *v1beta1.Principal, want *declaredPrincipal) ([]grants.Operation, error) {
	if want == nil {
		want = &declaredPrincipal{}
		var err error
		if want.roles, err = rolesDeclared(ctx, in, obj); unsolvable(err) {
			return nil, err
		}
		if want.groups, err = groupsDeclared(ctx, in, obj); unsolvable(err) {
			return nil, err
		}
	}
	all := slices.Clone(want.roles)
	for _, group := range want.groups {
		held, err := principalsByID.Of(in.Conn).Get(ctx, in.NotBefore, group.String())
		if err != nil && !connection.IsGone(err) {
			return nil, err
		}
		all = append(all, held.RoleIDs...)
	}
	var granted []schema.HexID
	for _, id := range asSet(all) {
		role, _, err := roles.Of(in.Conn).Find(ctx, in.NotBefore, id.String())
		if err != nil {
			return nil, err
		}
		granted = append(granted, role.Operations...)
	}
	var out []grants.Operation
	for _, id := range asSet(granted) {
		op, ok, err := operations.Of(in.Conn).Find(ctx, time.Time{}, id.String())
		if err != nil {
			return nil, err
		}
		if !ok { // not in the catalogue: no name and no duty
			op.Name = id.String()
		}
		out = append(out, grants.Operation{ID: id.String(), Name: op.Name, Duty: op.Duty})
	}
	return out, nil
}

// unsolvable reports whether an error is not a problem with the references of the object.
func unsolvable(err error) bool {
	var p *connection.Problem
	return err != nil && !errors.As(err, &p)
}

// differsInAccess lists the differences in roles, groups, flags and delegates. begun means that nothing has to be
// removed.
func differsInAccess(ctx context.Context, in reconcile.Input, want *declaredPrincipal, held schema.Principal, seen *reconcile.External) (begun bool) {
	begun = true
	differs := func(field, declared, observed string, less bool) {
		begun = begun && less
		seen.Drift = append(seen.Drift, v1beta1.FieldDrift{Field: field, Declared: declared, Observed: observed})
	}
	if has := asSet(held.RoleIDs); !slices.Equal(has, want.roles) {
		differs("roles", roleNames(ctx, in, want.roles), roleNames(ctx, in, has), within(has, want.roles))
	}
	if has := asSet(held.GroupIDs); !slices.Equal(has, want.groups) {
		differs("groups", principalNames(ctx, in, want.groups), principalNames(ctx, in, has), within(has, want.groups))
	}
	if held.Disabled != want.disabled {
		differs("disabled", fmt.Sprint(want.disabled), fmt.Sprint(held.Disabled), want.disabled)
	}
	declared, has := want.delegation(), delegationOf(held)
	if declared.enabled != has.enabled || !slices.Equal(declared.delegates, has.delegates) {
		differs("delegation", declared.names(ctx, in), has.names(ctx, in), !has.enabled)
	}
	return begun
}

func within(some, all []schema.HexID) bool {
	return !slices.ContainsFunc(some, func(id schema.HexID) bool { return !slices.Contains(all, id) })
}

// delegationSetting says whether other principals may act for a principal, and which ones.
type delegationSetting struct {
	enabled   bool
	delegates []schema.HexID // sorted; empty means any principal
}

func (d *declaredPrincipal) delegation() delegationSetting {
	return delegationSetting{enabled: d.anybody || len(d.delegates) > 0, delegates: d.delegates}
}

// delegationOf returns the delegation setting of a principal. Delegates without the flag have no effect.
func delegationOf(p schema.Principal) delegationSetting {
	if !p.Delegation {
		return delegationSetting{}
	}
	return delegationSetting{enabled: true, delegates: asSet(p.Delegates)}
}

func (l delegationSetting) names(ctx context.Context, in reconcile.Input) string {
	switch {
	case !l.enabled:
		return "none"
	case len(l.delegates) == 0:
		return "anybody"
	default:
		return principalNames(ctx, in, l.delegates)
	}
}

func roleNames(ctx context.Context, in reconcile.Input, ids []schema.HexID) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = id.String()
		if r, ok, err := roles.Of(in.Conn).Find(ctx, time.Time{}, names[i]); err == nil && ok {
			names[i] = r.Name
		}
	}
	slices.Sort(names)
	return listed(names)
}

func principalNames(ctx context.Context, in reconcile.Input, ids []schema.HexID) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = id.String()
		if p, err := principalsByID.Of(in.Conn).Get(ctx, time.Time{}, names[i]); err == nil {
			names[i] = p.Name
		}
	}
	slices.Sort(names)
	return listed(names)
}

// grantAccess makes roles, groups, flags and delegates equal to the declared ones. Each step removes before it adds,
// except for delegates. Disabling the principal is the first step, enabling it the last.
func grantAccess(ctx context.Context, c *connection.Connection, want declaredPrincipal, held schema.Principal) (schema.Principal, error) {
	w := accessWriter{c: c, want: want, held: held}
	for _, step := range []func(context.Context) error{w.disable, w.setRoles, w.setGroups, w.setDelegation, w.enable} {
		if err := step(ctx); err != nil {
			forgetPrincipal(c, held.ID.String())
			return w.held, err
		}
	}
	// Each write was verified: a difference now is an outside change.
	seen := reconcile.External{}
	if differsInAccess(ctx, reconcile.Input{Conn: c}, &want, w.held, &seen); len(seen.Drift) > 0 {
		return w.held, &connection.Problem{Reason: v1beta1.ReasonProgressing, Outdated: true,
			Message: reconcile.FieldsOf(seen.Drift) + " changed outside while the manager wrote the principal; it tries again"}
	}
	return w.held, nil
}

// accessWriter changes one principal to the declared state. held is the principal after the last write.
type accessWriter struct {
	c    *connection.Connection
	want declaredPrincipal
	held schema.Principal
}

func (w *accessWriter) disable(ctx context.Context) error {
	if !w.want.disabled || w.held.Disabled {
		return nil
	}
	return w.flags(ctx, schema.UpdatePrincipalFlagsRequest{Disabled: &w.want.disabled})
}

func (w *accessWriter) enable(ctx context.Context) error {
	if w.want.disabled || !w.held.Disabled {
		return nil
	}
	return w.flags(ctx, schema.UpdatePrincipalFlagsRequest{Disabled: &w.want.disabled})
}

func (w *accessWriter) flags(ctx context.Context, change schema.UpdatePrincipalFlagsRequest) error {
	change.ID = w.held.ID
	saved, err := w.c.Admin.UpdatePrincipalFlags(ctx, change)
	if err == nil {
		w.held.Disabled, w.held.Delegation = saved.After.Disabled, saved.After.Delegation
	}
	return err
}

func (w *accessWriter) setRoles(ctx context.Context) error {
	if slices.Equal(asSet(w.held.RoleIDs), w.want.roles) {
		return nil
	}
	saved, err := w.c.Admin.UpdatePrincipalRoles(ctx, schema.UpdatePrincipalRolesRequest{ID: w.held.ID, RoleIDs: w.want.roles})
	if err == nil {
		w.held = saved.Principal
	}
	return err
}

func (w *accessWriter) setGroups(ctx context.Context) error {
	for _, group := range slices.Clone(w.held.GroupIDs) {
		if slices.Contains(w.want.groups, group) {
			continue
		}
		gone, err := w.c.Admin.RemoveGroupMember(ctx, schema.GroupMemberRequest{Group: group, Member: w.held.ID})
		if err != nil {
			return err
		}
		w.held = gone.Member
	}
	for _, group := range w.want.groups {
		if slices.Contains(w.held.GroupIDs, group) {
			continue
		}
		saved, err := w.c.Admin.AddGroupMember(ctx, schema.GroupMemberRequest{Group: group, Member: w.held.ID})
		if err != nil {
			return err
		}
		w.held = saved.Member
	}
	return nil
}

// setDelegation adds delegates before it removes others. The flag without delegates would allow any principal, and the
// key server clears the flag when the last delegate is removed.
func (w *accessWriter) setDelegation(ctx context.Context) error {
	on := w.want.delegation().enabled
	if !on && w.held.Delegation {
		if err := w.delegation(ctx, false); err != nil {
			return err
		}
	}
	for _, id := range w.want.delegates {
		if slices.Contains(w.held.Delegates, id) {
			continue
		}
		saved, err := w.c.Admin.AddDelegate(ctx, schema.DelegateRequest{ID: w.held.ID, Delegate: id})
		if err != nil {
			return err
		}
		w.held = saved.Principal
	}
	for _, id := range slices.Clone(w.held.Delegates) {
		if slices.Contains(w.want.delegates, id) {
			continue
		}
		gone, err := w.c.Admin.RemoveDelegate(ctx, schema.DelegateRequest{ID: w.held.ID, Delegate: id})
		if err != nil {
			return err
		}
		w.held = gone.Principal
	}
	if on && !w.held.Delegation {
		return w.delegation(ctx, true)
	}
	return nil
}

func (w *accessWriter) delegation(ctx context.Context, on bool) error {
	return w.flags(ctx, schema.UpdatePrincipalFlagsRequest{Delegation: &on})
}
