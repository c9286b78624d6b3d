package grants

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/brief"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
)

// Scope has the names and operations that an object needs on a key server. A grant of the KeyServer must cover them.
type Scope struct {
	Names      []Name
	Operations []Operation // operations that the object grants to others
}

// Name is one name on a key server, in all its notations. A grant covers the name if it matches one of them.
type Name []string

// Operation is an operation that a role grants.
type Operation struct {
	ID   string // 16 hexadecimal digits
	Name string
	Duty string
}

// grantedBy reports whether an entry of a grant matches the operation by its name, its id, or its duty.
func (o Operation) grantedBy(entry string) bool {
	return entry == o.Name || strings.EqualFold(entry, o.ID) || (o.Duty != "" && entry == "duty:"+o.Duty)
}

// String names the operation for messages.
func (o Operation) String() string {
	if o.Duty == "" {
		return fmt.Sprintf("%q", o.Name)
	}
	return fmt.Sprintf("%q (duty %s)", o.Name, o.Duty)
}

// Verdict is the result of Evaluate.
type Verdict struct {
	// Grant is the grant that covers the object, or nil if none does. If several do, a grant that allows adoption is
	// preferred.
	Grant *v1beta1.Grant
	// Refusal is the reason why no grant covers the object. It is nil if Grant is not nil.
	Refusal *connection.Problem
}

// Evaluate finds a grant of a KeyServer that covers an object of a kind in a namespace. A single grant must cover all
// of reach. If kind is empty, any grant for the namespace is enough. Evaluate reads the labels of the namespace from
// the cluster.
func Evaluate(ctx context.Context, cluster client.Reader, ks *v1beta1.KeyServer, namespace, kind string, reach Scope) (Verdict, error) {
	var v Verdict
	var nearest *uncovered
	for i := range ks.Spec.Grants {
		g := &ks.Spec.Grants[i]
		is, err := appliesTo(ctx, cluster, ks, g, namespace)
		if err != nil {
			return Verdict{}, err
		}
		if !is {
			continue
		}
		l := findUncovered(g, kind, reach)
		switch {
		case l.none() && (v.Grant == nil || g.Adopt && !v.Grant.Adopt):
			v.Grant = g
		case nearest == nil || l.less(*nearest):
			nearest = &l
		}
	}
	switch {
	case v.Grant != nil:
	case nearest != nil:
		v.Refusal = connection.NewProblem(v1beta1.ReasonAccessDenied,
			"no grant of KeyServer %q covers this object: grant %q, the nearest, lacks %s; ask an administrator of the KeyServer to extend it in spec.grants", ks.Name, nearest.grant, nearest)
	default:
		v.Refusal = connection.NewProblem(v1beta1.ReasonAccessDenied,
			"KeyServer %q has no grant for namespace %q; ask an administrator of the KeyServer to add one to spec.grants", ks.Name, namespace)
	}
	return v, nil
}

// appliesTo reports whether a grant applies to a namespace, by the namespace's name or labels.
func appliesTo(ctx context.Context, cluster client.Reader, ks *v1beta1.KeyServer, g *v1beta1.Grant, namespace string) (bool, error) {
	who := g.Namespaces
	if slices.Contains(who.Names, namespace) {
		return true, nil
	}
	if who.Selector == nil {
		return false, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(who.Selector)
	if err != nil {
		return false, connection.NewProblem(v1beta1.ReasonDependencyNotReady,
			"KeyServer %q: namespaces.selector of grant %q is not a label selector: %s", ks.Name, g.Name, err)
	}
	if selector.Empty() {
		return true, nil
	}
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
	if err := cluster.Get(ctx, client.ObjectKey{Name: namespace}, m); err != nil {
		return false, fmt.Errorf("read namespace %s: %w", namespace, err)
	}
	return selector.Matches(labels.Set(m.Labels)), nil
}

// uncovered lists what a grant does not cover of an object.
type uncovered struct {
	grant      string
	kind       string
	names      []string
	operations []string
}

func findUncovered(g *v1beta1.Grant, kind string, reach Scope) uncovered {
	l := uncovered{grant: g.Name}
	if kind != "" && !slices.Contains(g.Kinds, v1beta1.GrantedKind(kind)) {
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

func (l uncovered) none() bool { return l.kind == "" && len(l.names) == 0 && len(l.operations) == 0 }

// less reports whether l lacks less than the list than. First, a list that lacks the kind counts as more. Then the
// numbers of names are compared.
func (l uncovered) less(than uncovered) bool {
	if (l.kind == "") != (than.kind == "") {
		return l.kind == ""
	}
	if len(l.names) != len(than.names) {
		return len(l.names) < len(than.names)
	}
	return len(l.operations) < len(than.operations)
}

// String formats the list for messages.
func (l uncovered) String() string {
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

// spellings formats a name for messages.
func spellings(n Name) string {
	quoted := make([]string, len(n))
	for i, s := range n {
		quoted[i] = fmt.Sprintf("%q", brief.Clip(s, 200))
	}
	return strings.Join(quoted, " or ")
}

// matches reports whether a glob matches a name. '*' matches any number
// of any characters, including '/'. Other characters match themselves.
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
	for _, part := range between { // the first match leaves the longest text for the later parts
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return true
}
