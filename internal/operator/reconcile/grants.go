package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/brief"
)

// Reach is what an object would touch on a key server, which a grant of the
// KeyServer has to cover.
type Reach struct {
	Names      []Name
	Operations []Operation // that it hands out
}

// Name is one name on a key server, in each of its spellings. A grant covers it
// by any of them.
type Name []string

// Operation is one that a role grants.
type Operation struct {
	ID   string // 16 hexadecimal digits
	Name string
	Duty string
}

// grantedBy reports whether an entry of a grant is for the operation: its name, its
// id, or its duty.
func (o Operation) grantedBy(entry string) bool {
	return entry == o.Name || strings.EqualFold(entry, o.ID) || (o.Duty != "" && entry == "duty:"+o.Duty)
}

// String names the operation, for people.
func (o Operation) String() string {
	if o.Duty == "" {
		return fmt.Sprintf("%q", o.Name)
	}
	return fmt.Sprintf("%q (duty %s)", o.Name, o.Duty)
}

// verdict is what the grants of a KeyServer say about an object.
type verdict struct {
	// grant covers all of it; one that lets it adopt, if any does. Nil for none.
	grant *v1alpha1.Grant
	// refusal says what is missing, where no grant covers it.
	refusal *connection.Problem
}

// judge asks the grants of a KeyServer about an object of a kind in a namespace.
// One grant has to cover all of it. No kind is any kind: it asks whether there is
// anything for the namespace.
func (c Cluster) judge(ctx context.Context, ks *v1alpha1.KeyServer, namespace, kind string, reach Reach) (verdict, error) {
	var v verdict
	var nearest *lack
	for i := range ks.Spec.Grants {
		g := &ks.Spec.Grants[i]
		resident, err := c.resident(ctx, ks, g, namespace)
		if err != nil {
			return verdict{}, err
		}
		if !resident {
			continue
		}
		l := lacking(g, kind, reach)
		switch {
		case l.none() && (v.grant == nil || g.Adopt && !v.grant.Adopt):
			v.grant = g
		case nearest == nil || l.less(*nearest):
			nearest = &l
		}
	}
	switch {
	case v.grant != nil:
	case nearest != nil:
		v.refusal = connection.NewProblem(v1alpha1.ReasonAccessDenied,
			"no grant of KeyServer %q covers this: grant %q, the nearest, lacks %s; an administrator of the KeyServer changes its spec.grants", ks.Name, nearest.grant, nearest)
	default:
		v.refusal = connection.NewProblem(v1alpha1.ReasonAccessDenied,
			"KeyServer %q grants nothing to namespace %q; an administrator of the KeyServer adds a grant for it to its spec.grants", ks.Name, namespace)
	}
	return v, nil
}

// resident reports whether a grant is for a namespace.
func (c Cluster) resident(ctx context.Context, ks *v1alpha1.KeyServer, g *v1alpha1.Grant, namespace string) (bool, error) {
	who := g.Namespaces
	if slices.Contains(who.Names, namespace) {
		return true, nil
	}
	if who.Selector == nil {
		return false, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(who.Selector)
	if err != nil {
		return false, connection.NewProblem(v1alpha1.ReasonDependencyNotReady,
			"KeyServer %q: namespaces.selector of grant %q is not a label selector: %s", ks.Name, g.Name, err)
	}
	if selector.Empty() {
		return true, nil
	}
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
	if err := c.Client.Get(ctx, client.ObjectKey{Name: namespace}, m); err != nil {
		return false, fmt.Errorf("read namespace %s: %w", namespace, err)
	}
	return selector.Matches(labels.Set(m.Labels)), nil
}

// lack is what a grant does not cover of an object.
type lack struct {
	grant      string
	kind       string
	names      []string
	operations []string
}

func lacking(g *v1alpha1.Grant, kind string, reach Reach) lack {
	l := lack{grant: g.Name}
	if kind != "" && !slices.Contains(g.Kinds, v1alpha1.GrantedKind(kind)) {
		l.kind = kind
	}
	for _, n := range reach.Names {
		if !slices.ContainsFunc(g.Names, func(glob string) bool {
			return slices.ContainsFunc(n, func(spelled string) bool { return matches(glob, spelled) })
		}) {
			l.names = append(l.names, spellings(n))
		}
	}
	for _, o := range reach.Operations {
		if !slices.ContainsFunc(g.Operations, o.grantedBy) {
			l.operations = append(l.operations, o.String())
		}
	}
	return l
}

func (l lack) none() bool { return l.kind == "" && len(l.names) == 0 && len(l.operations) == 0 }

// less reports whether less is missing than elsewhere: the kind weighs most, then
// names.
func (l lack) less(than lack) bool {
	if (l.kind == "") != (than.kind == "") {
		return l.kind == ""
	}
	if len(l.names) != len(than.names) {
		return len(l.names) < len(than.names)
	}
	return len(l.operations) < len(than.operations)
}

// String says what is missing, for people.
func (l lack) String() string {
	var parts []string
	if l.kind != "" {
		parts = append(parts, "the kind "+l.kind)
	}
	add := func(noun string, of []string) {
		if len(of) > 1 {
			noun += "s"
		}
		if len(of) > 0 {
			parts = append(parts, "the "+noun+" "+brief.List(of))
		}
	}
	add("name", l.names)
	add("operation", l.operations)
	return strings.Join(parts, " and ")
}

// spellings names a name, for people.
func spellings(n Name) string {
	quoted := make([]string, len(n))
	for i, s := range n {
		quoted[i] = fmt.Sprintf("%q", brief.Clip(s, 200))
	}
	return strings.Join(quoted, " or ")
}

// matches reports whether a glob is for a name. '*' stands for any characters,
// '/' among them, or none; everything else for itself.
func matches(glob, name string) bool {
	parts := strings.Split(glob, "*")
	if len(parts) == 1 {
		return glob == name
	}
	first, between, last := parts[0], parts[1:len(parts)-1], parts[len(parts)-1]
	rest, begins := strings.CutPrefix(name, first)
	rest, ends := strings.CutSuffix(rest, last)
	if !begins || !ends {
		return false
	}
	for _, part := range between { // the first place that it is found at leaves the most
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return true
}

// reach is what an object touches. One that only observes, or goes, hands out no
// operations.
func (r *reconciler[T, D]) reach(ctx context.Context, in Input, obj T, want *D) (Reach, error) {
	reach, err := r.adapter.Reach(ctx, in, obj, want)
	if spec, _ := obj.Managed(); spec.ManagementPolicy == v1alpha1.Observe || !obj.GetDeletionTimestamp().IsZero() {
		reach.Operations = nil
	}
	return reach, err
}

// enter asks, before the key server is asked anything, whether a grant covers what
// the object says by itself.
func (r *reconciler[T, D]) enter(ctx context.Context, p *pass[T, D]) error {
	reach, err := r.reach(ctx, p.in, p.obj, nil)
	if err != nil {
		return err
	}
	v, err := r.judge(ctx, p.keyServer, p.obj.GetNamespace(), r.kind.Name, reach)
	if err != nil || v.refusal == nil {
		return err
	}
	if p.facts.Owned != "" && !p.facts.Deleting {
		return connection.NewProblem(v.refusal.Reason, "%s; until then nothing is corrected, and what is on the key server stays and can be used", v.refusal.Message)
	}
	return v.refusal
}

// stay asks, before anything is written, whether a grant covers what has been
// resolved and found on the key server.
func (r *reconciler[T, D]) stay(ctx context.Context, p *pass[T, D]) error {
	reach, err := r.reach(ctx, p.in, p.obj, p.want)
	if err != nil {
		return err
	}
	reach.Names = slices.Concat(reach.Names, p.facts.External.Names)
	v, err := r.judge(ctx, p.keyServer, p.obj.GetNamespace(), r.kind.Name, reach)
	if err != nil {
		return err
	}
	if v.refusal != nil {
		return v.refusal
	}
	p.facts.withhold(v.grant)
	return nil
}

// withhold keeps what the object has neither made nor taken over from it, where
// the grant lets nothing be taken over.
func (f *Facts) withhold(g *v1alpha1.Grant) {
	has := f.External.ID == f.Owned || f.resumes() || f.supersedes(f.External.ID) || f.mine()
	if g.Adopt || has || f.Adoption == v1alpha1.AdoptNever {
		return
	}
	f.External.Hindrances = append(f.External.Hindrances, Hindrance{
		Rule: "ungranted", When: Present, Reason: v1alpha1.ReasonAccessDenied,
		Message: fmt.Sprintf("%s exists already, and grant %q of the KeyServer lets no object take over what exists; "+
			"an administrator of the KeyServer sets adopt in it, or observe it with managementPolicy Observe", f.External.What, g.Name),
	})
}

// granted reports whether a grant of its KeyServer covers an object, as far as it says
// by itself what it touches. Without the KeyServer nothing does.
func (r *reconciler[T, D]) granted(ctx context.Context, obj T) (bool, error) {
	spec, _ := obj.Managed()
	ks := &v1alpha1.KeyServer{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: spec.KeyServerRef.Name}, ks); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	reach, err := r.reach(ctx, Input{Cluster: r.Client, Sources: r.sources, Issuer: r.Issuer, Now: r.Clock.Now()}, obj, nil)
	if err != nil {
		return true, nil //nolint:nilerr // what it would touch is not known: it holds
	}
	v, err := r.judge(ctx, ks, obj.GetNamespace(), r.kind.Name, reach)
	return v.grant != nil, err
}

// covered reports whether a grant covers another object as far as it says by
// itself what it touches, and whether it may take over what exists.
func (r *reconciler[T, D]) covered(ctx context.Context, p *pass[T, D], other T) (is, adopts bool, err error) {
	reach, err := r.reach(ctx, p.in, other, nil)
	if err != nil {
		return false, false, err
	}
	v, err := r.judge(ctx, p.keyServer, other.GetNamespace(), r.kind.Name, reach)
	return v.grant != nil, v.grant != nil && v.grant.Adopt, err
}
