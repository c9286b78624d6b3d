package controllers

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/grants"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
)

// roles is the list of roles, found by id and by name.
var roles = connection.List[schema.Role]{
	Name: "role",
	Read: func(ctx context.Context, c *connection.Connection) ([]schema.Role, error) {
		l, err := c.Admin.ListRoles(ctx)
		return l.Roles, err
	},
	Keys: func(r schema.Role) []string { return []string{r.ID.String(), byName(r.Name)} },
}

// operations lists the operations of the key server, found by id and by name. They change only with its version, so the
// change feed does not report them.
var operations = connection.List[schema.Operation]{
	Name: "operation",
	Read: func(ctx context.Context, c *connection.Connection) ([]schema.Operation, error) {
		l, err := c.Admin.ListOperations(ctx)
		return l.Operations, err
	},
	Keys: func(o schema.Operation) []string { return []string{o.ID.String(), byName(o.Name)} },
}

// byName returns the key that finds an object by its name in a Listing. Its prefix distinguishes names from ids.
func byName(name string) string { return "name:" + name }

// declaredRole is the declaration of a Role with its operations resolved.
type declaredRole struct {
	id         string // empty if the name identifies the role
	name       string // empty if the name stays unchanged
	operations []schema.HexID
}

type roleAdapter struct{}

func init() { adapted(roleAdapter{}) }

// Kind implements reconcile.Adapter.
func (roleAdapter) Kind() reconcile.Kind {
	return reconcile.Kind{
		Name: "Role", Feed: roles.Name,
		FormatID: schema.HexID.String,
		ParseID:  schema.ParseHexID,
	}
}

// Sources implements reconcile.Adapter.
func (roleAdapter) Sources(*v1beta1.Role) []sources.Ref { return nil }

// Owned implements reconcile.Adapter.
func (roleAdapter) Owned(obj *v1beta1.Role) string { return obj.Status.RoleID }

// Claims implements reconcile.Adapter: a Role claims a name, an id, or both.
func (roleAdapter) Claims(obj *v1beta1.Role, _ *declaredRole) []string {
	var claims []string
	if obj.Spec.RoleName != nil {
		claims = append(claims, byName(*obj.Spec.RoleName))
	}
	if obj.Spec.RoleID != nil {
		claims = append(claims, strings.ToLower(*obj.Spec.RoleID))
	} else if obj.Status.RoleID != "" && obj.Status.Provenance != "" {
		claims = append(claims, obj.Status.RoleID)
	}
	return claims
}

// Scope implements reconcile.Adapter: it returns the name of the role and its operations with their duties. Observe
// adds the present name of the role. An operation that the key server does not have has no duty.
func (roleAdapter) Scope(ctx context.Context, in reconcile.Input, obj *v1beta1.Role, _ *declaredRole) (grants.Scope, error) {
	var reach grants.Scope
	if obj.Spec.RoleName != nil {
		reach.Names = []grants.Name{{*obj.Spec.RoleName}}
	}
	if in.Conn == nil || !obj.DeletionTimestamp.IsZero() { // a deletion needs no catalogue
		return reach, nil
	}
	for _, asked := range obj.Spec.Operations {
		op, ok, err := operations.Of(in.Conn).Find(ctx, time.Time{}, operationKey(asked))
		if err != nil {
			return reach, err
		}
		if !ok {
			reach.Operations = append(reach.Operations, grants.Operation{ID: asked, Name: asked})
			continue
		}
		reach.Operations = append(reach.Operations, grants.Operation{ID: op.ID.String(), Name: op.Name, Duty: op.Duty})
	}
	return reach, nil
}

var hexID = regexp.MustCompile(`^[0-9a-fA-F]{16}$`)

// operationKey returns the key that finds an operation in a Listing. asked is the name or the id of the operation.
func operationKey(asked string) string {
	if hexID.MatchString(asked) {
		return strings.ToLower(asked)
	}
	return byName(asked)
}

// Provides implements reconcile.Provider: other objects refer to a role by its name on the key server, or by its
// object.
func (roleAdapter) Provides(obj *v1beta1.Role) []string {
	keys := []string{objectKey("Role", obj.Namespace, obj.Name)}
	if obj.Spec.RoleName != nil && obj.Status.RoleID != "" {
		keys = append(keys, reconcile.IndexKey(obj.Spec.KeyServerRef.Name, roleKey(*obj.Spec.RoleName)))
	}
	return keys
}

// Declared implements reconcile.Adapter.
func (roleAdapter) Declared(ctx context.Context, in reconcile.Input, obj *v1beta1.Role) (declaredRole, error) {
	want := declaredRole{operations: []schema.HexID{}}
	if obj.Spec.RoleName != nil {
		want.name = *obj.Spec.RoleName
	}
	if obj.Spec.RoleID != nil {
		want.id = strings.ToLower(*obj.Spec.RoleID)
	}
	catalogue := operations.Of(in.Conn)
	var unknown []string
	for _, asked := range obj.Spec.Operations {
		op, ok, err := catalogue.Find(ctx, time.Time{}, operationKey(asked))
		if err != nil {
			return want, err
		}
		if !ok {
			unknown = append(unknown, asked)
			continue
		}
		want.operations = append(want.operations, op.ID)
	}
	if len(unknown) > 0 {
		var names []string
		catalogue.Each(func(o schema.Operation) { names = append(names, o.Name) })
		return want, connection.NewProblem(v1beta1.ReasonInvalidSpec, "spec.operations: %s", unknownNames(unknown, names, "GET /api/operations lists them"))
	}
	want.operations = asSet(want.operations)
	return want, nil
}

// Observe implements reconcile.Adapter. It finds the role by
// the id that the object owns or names, and otherwise by name.
func (roleAdapter) Observe(ctx context.Context, in reconcile.Input, obj *v1beta1.Role, want *declaredRole) (reconcile.External, error) {
	seen := reconcile.External{What: "role " + describe(obj)}
	keys := []string{obj.Status.RoleID}
	if want != nil && !in.Deleting {
		if want.id != "" {
			keys = []string{want.id}
			seen.Blockers = append(seen.Blockers, reconcile.Uncreatable(
				"spec.roleId: no role has the id "+want.id+"; spec.roleId must name an existing role: delete this object; to create a role, declare one with spec.roleName and without spec.roleId"))
		} else {
			keys = append(keys, byName(want.name))
		}
	} else if want != nil && obj.Status.RoleID == "" {
		keys = []string{want.id, byName(want.name)}
	}
	role, ok, err := roles.Of(in.Conn).Find(ctx, in.NotBefore, keys...)
	if err != nil || !ok {
		return seen, err
	}
	seen.Exists, seen.ID, seen.Names = true, role.ID.String(), []grants.Name{{role.Name}}
	seen.What = fmt.Sprintf("role %q (id %s)", role.Name, seen.ID)
	if role.BuiltIn != nil && *role.BuiltIn {
		seen.Blockers = append(seen.Blockers, reconcile.BuiltIn(seen.What))
	}
	if want == nil {
		return seen, nil
	}
	if want.name != "" && want.name != role.Name {
		seen.Drift = append(seen.Drift, v1beta1.FieldDrift{Field: "roleName", Declared: want.name, Observed: role.Name})
		holder, taken, err := roles.Of(in.Conn).Find(ctx, in.NotBefore, byName(want.name))
		if err != nil {
			return seen, err
		}
		if taken {
			seen.Blockers = append(seen.Blockers, reconcile.Fixed(fmt.Sprintf(
				"spec.roleName: role %q (id %s) already has this name; rename or delete that role, or declare another name", holder.Name, holder.ID)))
		}
	}
	if have := asSet(role.Operations); !slices.Equal(have, want.operations) {
		catalogue := operations.Of(in.Conn)
		seen.Drift = append(seen.Drift, v1beta1.FieldDrift{
			Field: "operations", Declared: operationList(ctx, catalogue, want.operations), Observed: operationList(ctx, catalogue, have),
		})
	}
	seen.Evidence = fmt.Sprintf("role %s lists exactly the declared %s", seen.ID, plural(len(want.operations), "operation"))
	return seen, nil
}

// Create implements reconcile.Adapter.
func (roleAdapter) Create(ctx context.Context, c *connection.Connection, want declaredRole) (reconcile.Outcome, error) {
	saved, err := c.Admin.CreateRole(ctx, schema.CreateRoleRequest{Name: want.name, Operations: want.operations})
	return roleSaved(c, saved, err)
}

// Update implements reconcile.Adapter. It sends only the differences.
func (roleAdapter) Update(ctx context.Context, c *connection.Connection, want declaredRole, seen reconcile.External) (reconcile.Outcome, error) {
	id, err := parseID(schema.ParseHexID, seen.ID)
	if err != nil {
		return reconcile.Outcome{}, err
	}
	change := schema.UpdateRoleRequest{ID: id}
	for _, d := range seen.Drift {
		switch d.Field {
		case "roleName":
			change.Name = &want.name
		case "operations":
			change.Operations = want.operations
		}
	}
	saved, err := c.Admin.UpdateRole(ctx, change)
	return roleSaved(c, saved, err)
}

func roleSaved(c *connection.Connection, saved schema.RoleSaved, err error) (reconcile.Outcome, error) {
	if err != nil {
		return reconcile.Outcome{}, err
	}
	roles.Of(c).Put(*saved.Role)
	return reconcile.Outcome{
		ID:       saved.Role.ID.String(),
		Evidence: fmt.Sprintf("the second read shows %q with %s", saved.Role.Name, plural(len(saved.Role.Operations), "operation")),
	}, nil
}

// Delete implements reconcile.Adapter.
func (roleAdapter) Delete(ctx context.Context, c *connection.Connection, _ *v1beta1.Role, id string) (reconcile.Outcome, error) {
	role, err := parseID(schema.ParseHexID, id)
	if err != nil {
		return reconcile.Outcome{}, err
	}
	if _, err := c.Admin.DeleteRole(ctx, schema.ByID{ID: role}); err != nil {
		return reconcile.Outcome{}, err
	}
	roles.Of(c).Drop(id)
	return reconcile.Outcome{ID: id, Evidence: "a fresh read no longer lists it; principals that had it no longer have it"}, nil
}

// Record implements reconcile.Adapter.
func (roleAdapter) Record(obj *v1beta1.Role, want *declaredRole, seen reconcile.External, owner bool, _ time.Time) {
	if !owner {
		return
	}
	obj.Status.RoleID = seen.ID
	if want != nil && len(seen.Drift) == 0 {
		n := int32(len(want.operations)) //nolint:gosec // the schema limits it to 256
		obj.Status.OperationCount = &n
	}
}

func describe(obj *v1beta1.Role) string {
	if obj.Spec.RoleName != nil {
		return fmt.Sprintf("%q", *obj.Spec.RoleName)
	}
	if obj.Spec.RoleID != nil {
		return *obj.Spec.RoleID
	}
	return obj.Name
}

// asSet sorts ids and drops duplicates.
func asSet(ids []schema.HexID) []schema.HexID {
	out := slices.Clone(ids)
	slices.SortFunc(out, func(a, b schema.HexID) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(out)
}

// operationList formats operations by name. If it does not know the name, it uses the id.
func operationList(ctx context.Context, catalogue *connection.Listing[schema.Operation], ids []schema.HexID) string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = id.String()
		if op, ok, err := catalogue.Find(ctx, time.Time{}, id.String()); err == nil && ok {
			out[i] = op.Name
		}
	}
	return strings.Join(out, ", ")
}
