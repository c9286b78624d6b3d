package controllers

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/grants"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
)

// trustPage is the maximum page size of principal trusts.
const trustPage = 500

// principalTrusts is the list of principal trusts, found by id and by the pair
// of principal and peer.
var principalTrusts = connection.List[schema.PrincipalTrust]{
	Name: "principalTrust",
	Read: func(ctx context.Context, c *connection.Connection) ([]schema.PrincipalTrust, error) {
		var all []schema.PrincipalTrust
		for limit := trustPage; ; {
			offset := len(all)
			page, err := c.Officer.ListPrincipalTrusts(ctx, schema.PrincipalTrustsQuery{Limit: &limit, Offset: &offset})
			if err != nil {
				return nil, err
			}
			all = append(all, page.PrincipalTrusts...)
			if len(page.PrincipalTrusts) < limit {
				return all, nil
			}
		}
	},
	Keys: func(t schema.PrincipalTrust) []string {
		keys := []string{t.ID.String()}
		if t.PrincipalID != nil && t.TrustedServerSystemID != nil {
			keys = append(keys, pairKey(*t.PrincipalID, *t.TrustedServerSystemID))
		}
		return keys
	},
}

func pairKey(principal schema.HexID, system schema.SystemID) string {
	return principal.String() + " for " + systemKey(system)
}

// declaredTrust is the declaration of a PrincipalTrust with its references resolved.
type declaredTrust struct {
	principal schema.HexID
	system    schema.SystemID
	flag      string
}

func (d *declaredTrust) pair() string { return pairKey(d.principal, d.system) }

type principalTrustAdapter struct{}

func init() { adapted(principalTrustAdapter{}) }

// Kind implements reconcile.Adapter.
func (principalTrustAdapter) Kind() reconcile.Kind {
	return reconcile.Kind{
		Name: "PrincipalTrust", Feed: principalTrusts.Name,
		FormatID: schema.HexID.String,
		ParseID:  schema.ParseHexID,
		Awaits:   []string{trustedServers.Name, principals.Feed},
	}
}

// Sources implements reconcile.Adapter.
func (principalTrustAdapter) Sources(*v1beta1.PrincipalTrust) []sources.Ref { return nil }

// Owned implements reconcile.Adapter.
func (principalTrustAdapter) Owned(obj *v1beta1.PrincipalTrust) string {
	return obj.Status.PrincipalTrustID
}

// Claims implements reconcile.Adapter: a PrincipalTrust claims a pair of principal and peer. A key server has at most
// one principal trust for each pair. The status has the resolved pair.
func (principalTrustAdapter) Claims(obj *v1beta1.PrincipalTrust, want *declaredTrust) []string {
	if want != nil {
		return []string{want.pair()}
	}
	var id schema.HexID
	if obj.Status.SystemID == nil || id.UnmarshalText([]byte(obj.Status.PrincipalID)) != nil {
		return nil
	}
	return []string{pairKey(id, schema.SystemID(*obj.Status.SystemID))} //nolint:gosec // the schema limits it
}

// Scope implements reconcile.Adapter: the name is the principal, as the spec writes it.
func (principalTrustAdapter) Scope(_ context.Context, _ reconcile.Input, obj *v1beta1.PrincipalTrust, _ *declaredTrust) (grants.Scope, error) {
	ref := obj.Spec.Principal
	name := fmt.Sprintf("%s/%s", deref(ref.Type), deref(ref.Name))
	if ref.ID != nil {
		name = "id/" + strings.ToLower(*ref.ID)
	}
	return grants.Scope{Names: []grants.Name{{name}}}, nil
}

// Needs implements reconcile.Consumer.
func (principalTrustAdapter) Needs(obj *v1beta1.PrincipalTrust) []reconcile.Need {
	var needs []reconcile.Need
	if ref := obj.Spec.Principal; ref.ID == nil {
		needs = append(needs, reconcile.Need{Key: reconcile.IndexKey(obj.Spec.KeyServerRef.Name, principalKey(string(deref(ref.Type))+"/"+deref(ref.Name)))})
	}
	if ref := obj.Spec.TrustedServerRef; ref != nil {
		return append(needs, reconcile.Need{Key: objectKey("TrustedServer", obj.Namespace, ref.Name), Holds: true})
	}
	if obj.Spec.SystemID == nil {
		return needs
	}
	return append(needs, reconcile.Need{Key: reconcile.IndexKey(obj.Spec.KeyServerRef.Name, peerKey(fmt.Sprint(*obj.Spec.SystemID))), Holds: true})
}

// Declared implements reconcile.Adapter.
func (a principalTrustAdapter) Declared(ctx context.Context, in reconcile.Input, obj *v1beta1.PrincipalTrust) (declaredTrust, error) {
	want := declaredTrust{flag: string(obj.Spec.Flag)}
	var err error
	if want.system, err = a.peer(ctx, in, obj); err != nil {
		return want, err
	}
	ref := obj.Spec.Principal
	if ref.ID != nil {
		if err := want.principal.UnmarshalText([]byte(*ref.ID)); err != nil {
			return want, connection.NewProblem(v1beta1.ReasonInvalidSpec, "spec.principal.id %s", err)
		}
		return want, nil
	}
	found, err := principalIn(ctx, in, "spec.principal", string(deref(ref.Type)), deref(ref.Name))
	want.principal = found.ID
	return want, err
}

// peer returns the system id of the peer.
func (principalTrustAdapter) peer(ctx context.Context, in reconcile.Input, obj *v1beta1.PrincipalTrust) (schema.SystemID, error) {
	if obj.Spec.SystemID != nil {
		return schema.SystemID(*obj.Spec.SystemID), nil //nolint:gosec // the schema limits it
	}
	name := types.NamespacedName{Namespace: obj.Namespace, Name: deref(obj.Spec.TrustedServerRef).Name}
	server := &v1beta1.TrustedServer{}
	err := in.Cluster.Get(ctx, name, server)
	switch {
	case apierrors.IsNotFound(err):
		return 0, connection.NewProblem(v1beta1.ReasonDependencyNotReady, "TrustedServer %s does not exist", name)
	case err != nil:
		return 0, fmt.Errorf("read TrustedServer %s: %w", name, err)
	case server.Spec.KeyServerRef != obj.Spec.KeyServerRef:
		return 0, connection.NewProblem(v1beta1.ReasonInvalidSpec, "TrustedServer %s refers to KeyServer %q, but this object refers to KeyServer %q; use the same keyServerRef in both",
			name, server.Spec.KeyServerRef.Name, obj.Spec.KeyServerRef.Name)
	case server.Status.SystemID == nil:
		return 0, connection.NewProblem(v1beta1.ReasonDependencyNotReady, "TrustedServer %s is not registered yet", name)
	}
	return schema.SystemID(*server.Status.SystemID), nil //nolint:gosec // a system id
}

// Observe implements reconcile.Adapter.
func (principalTrustAdapter) Observe(ctx context.Context, in reconcile.Input, obj *v1beta1.PrincipalTrust, want *declaredTrust) (reconcile.External, error) {
	seen := reconcile.External{What: "principal trust of " + describePrincipal(obj.Spec.Principal)}
	keys := []string{obj.Status.PrincipalTrustID}
	if want != nil {
		keys = append(keys, want.pair())
		seen.What += fmt.Sprintf(" for the peer %d", want.system)
	}
	row, ok, err := principalTrusts.Of(in.Conn).Find(ctx, in.NotBefore, keys...)
	if err != nil {
		return seen, err
	}
	if !ok {
		if want != nil && !in.Deleting {
			seen.Blockers, err = unregistered(ctx, in, want.system)
		}
		return seen, err
	}
	seen.Exists, seen.ID = true, row.ID.String()
	seen.What += " (id " + seen.ID + ")"
	seen.Evidence = fmt.Sprintf("principal trust %s has the flag %s", seen.ID, obj.Spec.Flag)
	if held := deref(row.FlagLabel); want != nil && held != want.flag {
		seen.Drift = []v1beta1.FieldDrift{{Field: "flag", Declared: want.flag, Observed: held}}
	}
	return seen, nil
}

// unregistered returns a blocker if the peer is not registered.
func unregistered(ctx context.Context, in reconcile.Input, system schema.SystemID) ([]reconcile.Blocker, error) {
	_, ok, err := trustedServers.Of(in.Conn).Find(ctx, in.NotBefore, systemKey(system))
	if err != nil || ok {
		return nil, err
	}
	return []reconcile.Blocker{reconcile.Dependency(reconcile.Absent,
		fmt.Sprintf("KeyServer %q has no peer with the system id %d; declare it as a TrustedServer", in.Conn.Name, system))}, nil
}

// Create implements reconcile.Adapter.
func (principalTrustAdapter) Create(ctx context.Context, c *connection.Connection, want declaredTrust) (reconcile.Outcome, error) {
	saved, err := c.Officer.CreatePrincipalTrust(ctx, schema.CreatePrincipalTrustRequest{
		PrincipalID: want.principal, TrustedServerSystemID: want.system, Flag: want.flag,
	})
	return trustSaved(c, saved, err)
}

// Update implements reconcile.Adapter.
func (principalTrustAdapter) Update(ctx context.Context, c *connection.Connection, want declaredTrust, seen reconcile.External) (reconcile.Outcome, error) {
	id, err := parseID(schema.ParseHexID, seen.ID)
	if err != nil {
		return reconcile.Outcome{}, err
	}
	saved, err := c.Officer.UpdatePrincipalTrust(ctx, schema.UpdatePrincipalTrustRequest{ID: id, Flag: want.flag})
	return trustSaved(c, saved, err)
}

func trustSaved(c *connection.Connection, saved schema.PrincipalTrustSaved, err error) (reconcile.Outcome, error) {
	if err != nil {
		return reconcile.Outcome{}, err
	}
	principalTrusts.Of(c).Put(*saved.PrincipalTrust)
	return reconcile.Outcome{ID: saved.PrincipalTrust.ID.String(), Evidence: fmt.Sprintf("%s; the flag is %s", saved.Detail, deref(saved.PrincipalTrust.FlagLabel))}, nil
}

// Delete implements reconcile.Adapter.
func (principalTrustAdapter) Delete(ctx context.Context, c *connection.Connection, _ *v1beta1.PrincipalTrust, id string) (reconcile.Outcome, error) {
	trust, err := parseID(schema.ParseHexID, id)
	if err != nil {
		return reconcile.Outcome{}, err
	}
	gone, err := c.Officer.DeletePrincipalTrust(ctx, schema.ByID{ID: trust})
	if err != nil {
		return reconcile.Outcome{}, err
	}
	principalTrusts.Of(c).Drop(id)
	return reconcile.Outcome{ID: id, Evidence: gone.Detail}, nil
}

// Record implements reconcile.Adapter.
func (principalTrustAdapter) Record(obj *v1beta1.PrincipalTrust, want *declaredTrust, seen reconcile.External, owner bool, _ time.Time) {
	if want != nil {
		system := int64(want.system)
		obj.Status.PrincipalID, obj.Status.SystemID = want.principal.String(), &system
	}
	if owner {
		obj.Status.PrincipalTrustID = seen.ID
	}
}

func describePrincipal(ref v1beta1.PrincipalReference) string {
	if ref.ID != nil {
		return "principal " + strings.ToLower(*ref.ID)
	}
	return fmt.Sprintf("%s principal %q", deref(ref.Type), deref(ref.Name))
}
