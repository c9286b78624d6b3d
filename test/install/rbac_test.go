package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// allKinds are the resources of all kinds of the operator.
var allKinds = func() (resources []string) {
	for _, k := range v1beta1.Kinds {
		resources = append(resources, k.Resource)
	}
	return resources
}()

const ourGroup = "trust.keyserver.dev"

// ask is one request to the authorizer of the cluster.
type ask struct {
	verb, group, resource, namespace, name, path string
}

// may returns whether the real authorizer allows a request of a service account of the product.
func may(t *testing.T, account string, a ask) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   "system:serviceaccount:" + namespace + ":" + account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}}
	if a.path != "" {
		// The review omits the groups, because many clusters grant discovery to all groups, and some do not.
		review.Spec.Groups = nil
		review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: a.verb, Path: a.path}
	} else {
		resource, sub, _ := strings.Cut(a.resource, "/")
		review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Verb: a.verb, Group: a.group, Resource: resource, Subresource: sub, Namespace: a.namespace, Name: a.name,
		}
	}
	if err := kube.Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

func check(t *testing.T, account string, allowed bool, asks []ask) {
	t.Helper()
	for _, a := range asks {
		if allowed { // the authorizer learns of new bindings with a delay
			rig.Soon(t, fmt.Sprintf("%s may %+v", account, a), func() bool { return may(t, account, a) })
			continue
		}
		if may(t, account, a) {
			t.Errorf("%s: %+v: allowed", account, a)
		}
	}
}

func TestManagerRights(t *testing.T) {
	apply(t, build(t, defaults))
	const manager = "keyserver-manager"
	allowed := []ask{
		{verb: "create", group: "coordination.k8s.io", resource: "leases", namespace: namespace},
		{verb: "get", group: "coordination.k8s.io", resource: "leases", namespace: namespace, name: "manager.trust.keyserver.dev"},
		{verb: "update", group: "coordination.k8s.io", resource: "leases", namespace: namespace, name: "manager.trust.keyserver.dev"},
		{verb: "create", group: "events.k8s.io", resource: "events", namespace: "any"},
		{verb: "patch", group: "events.k8s.io", resource: "events", namespace: "any"},
		{verb: "create", resource: "events", namespace: namespace},
		{verb: "get", resource: "configmaps", namespace: namespace, name: "keyserver-ca"},
		{verb: "patch", resource: "configmaps", namespace: namespace, name: "keyserver-ca"},
		{verb: "patch", resource: "configmaps", namespace: namespace, name: "keyserver-first"},
		{verb: "create", group: ourGroup, resource: "keyservers"},
		{verb: "get", path: "/openid/v1/jwks"},
		{verb: "get", path: "/.well-known/openid-configuration"},
		{verb: "get", group: "apiextensions.k8s.io", resource: "customresourcedefinitions", name: "roles.trust.keyserver.dev"},
	}
	refused := []ask{
		{verb: "delete", group: "coordination.k8s.io", resource: "leases", namespace: namespace, name: "manager.trust.keyserver.dev"},
		{verb: "update", group: "coordination.k8s.io", resource: "leases", namespace: namespace, name: "another"},
		{verb: "create", group: "coordination.k8s.io", resource: "leases", namespace: "kube-system"},
		{verb: "create", resource: "configmaps", namespace: namespace},
		{verb: "patch", resource: "configmaps", namespace: namespace, name: "keyserver-settings"},
		{verb: "patch", resource: "configmaps", namespace: "default", name: "keyserver-ca"},
		{verb: "get", group: "apiextensions.k8s.io", resource: "customresourcedefinitions", name: "certificates.cert-manager.io"},
		{verb: "list", group: "apiextensions.k8s.io", resource: "customresourcedefinitions"},
		{verb: "create", group: "authentication.k8s.io", resource: "tokenreviews"},
		{verb: "create", resource: "serviceaccounts/token", namespace: namespace},
		{verb: "create", resource: "pods", namespace: namespace},
		{verb: "create", resource: "pods/exec", namespace: namespace},
		{verb: "list", resource: "pods", namespace: namespace},
		{verb: "get", path: "/metrics"},
	}
	for _, kind := range allKinds {
		for _, verb := range []string{"get", "list", "watch", "patch"} {
			allowed = append(allowed, ask{verb: verb, group: ourGroup, resource: kind, namespace: "any"})
		}
		allowed = append(allowed, ask{verb: "patch", group: ourGroup, resource: kind + "/status", namespace: "any"})
		for _, verb := range []string{"create", "update", "delete", "deletecollection"} {
			if verb != "create" || kind != "keyservers" {
				refused = append(refused, ask{verb: verb, group: ourGroup, resource: kind, namespace: "any"})
			}
		}
		refused = append(refused, ask{verb: "update", group: ourGroup, resource: kind + "/status", namespace: "any"})
	}
	for _, verb := range []string{"get", "list", "watch"} {
		allowed = append(allowed, ask{verb: verb, resource: "configmaps", namespace: "any"})
		for _, in := range []string{"any", namespace, ""} {
			refused = append(refused, ask{verb: verb, resource: "secrets", namespace: in})
		}
	}
	for _, verb := range []string{"create", "update", "patch", "delete"} {
		for _, kind := range []string{"secrets", "configmaps"} {
			refused = append(refused, ask{verb: verb, resource: kind, namespace: "any"})
		}
	}
	for _, verb := range []string{"get", "create", "patch", "delete"} { // needs a binding by an administrator
		refused = append(refused, ask{verb: verb, group: "certificates.k8s.io", resource: "clustertrustbundles", name: "any"})
	}
	check(t, manager, true, allowed)
	check(t, manager, false, refused)
}

// The manager reads Secrets, and publishes, only in a namespace where an administrator has bound the role for that. Neither
// role gives the right of the other.
func TestManagerRightsInANamespace(t *testing.T) {
	for right, c := range map[string]struct {
		resource string
		verbs    []string
	}{
		"secrets": {"secrets", []string{"get", "list", "watch"}},
		"publish": {"configmaps", []string{"create", "patch", "delete"}},
	} {
		t.Run(right, func(t *testing.T) {
			apply(t, build(t, defaults))
			binding := build(t, access+"/"+right)
			apply(t, binding)
			t.Cleanup(func() { // the other right must come from its own binding
				if err := kube.Delete(context.Background(), binding[0]); err != nil {
					t.Error(err)
				}
			})
			var allowed, refused []ask
			for _, resource := range []string{"secrets", "configmaps"} {
				for _, verb := range []string{"get", "list", "watch", "create", "patch", "delete"} {
					in := ask{verb: verb, resource: resource, namespace: "default"}
					elsewhere := ask{verb: verb, resource: resource, namespace: "any"}
					switch reads := slices.Contains([]string{"get", "list", "watch"}, verb); {
					case resource == "configmaps" && reads:
						allowed = append(allowed, in, elsewhere)
						continue
					case resource == c.resource && slices.Contains(c.verbs, verb):
						allowed = append(allowed, in)
					default:
						refused = append(refused, in)
					}
					refused = append(refused, elsewhere)
				}
			}
			check(t, "keyserver-manager", true, allowed)
			check(t, "keyserver-manager", false, refused)
		})
	}
}

// Scaled out, the manager can read the Secret with the CA, but not the Secret with the
// key-encryption key in the same namespace.
func TestManagerRightsScaledOut(t *testing.T) {
	apply(t, build(t, postgres))
	const manager = "keyserver-manager"
	check(t, manager, true, []ask{{verb: "get", resource: "secrets", namespace: namespace, name: "keyserver-tls"}})
	check(t, manager, false, []ask{
		{verb: "get", resource: "secrets", namespace: namespace, name: "keyserver-kek"},
		{verb: "get", resource: "secrets", namespace: namespace, name: "keyserver-database"},
		{verb: "list", resource: "secrets", namespace: namespace},
		{verb: "patch", resource: "secrets", namespace: namespace, name: "keyserver-tls"},
	})
}

// If the key server has its own service account, this may only check tokens. If it shares a Pod with the manager, it
// has none.
func TestKeyServerRights(t *testing.T) {
	apply(t, build(t, postgres))
	const api = "keyserver-api"
	check(t, api, true, []ask{{verb: "create", group: "authentication.k8s.io", resource: "tokenreviews"}})
	refused := []ask{
		{verb: "create", group: "authorization.k8s.io", resource: "subjectaccessreviews"},
		{verb: "get", resource: "secrets", namespace: namespace, name: "keyserver-kek"},
		{verb: "get", resource: "configmaps", namespace: namespace, name: "keyserver-settings"},
		{verb: "create", resource: "serviceaccounts/token", namespace: namespace},
		{verb: "create", group: "coordination.k8s.io", resource: "leases", namespace: namespace},
		{verb: "create", group: "events.k8s.io", resource: "events", namespace: namespace},
		{verb: "get", path: "/metrics"},
	}
	for _, kind := range allKinds {
		refused = append(refused, ask{verb: "get", group: ourGroup, resource: kind, namespace: namespace})
	}
	check(t, api, false, refused)
}

// No rule is a wildcard, and no rule lets a service account get more rights.
func TestNoWildcards(t *testing.T) {
	for _, name := range installations {
		objects := build(t, name)
		var rules []rbacv1.PolicyRule
		for _, r := range typed[rbacv1.ClusterRole](t, objects, "ClusterRole") {
			rules = append(rules, r.Rules...)
		}
		for _, r := range typed[rbacv1.Role](t, objects, "Role") { // not the operator's kind, which no installation has
			rules = append(rules, r.Rules...)
		}
		if len(rules) == 0 {
			t.Fatal("no rules")
		}
		for _, rule := range rules {
			for _, list := range [][]string{rule.Verbs, rule.Resources, rule.APIGroups, rule.NonResourceURLs} {
				if strings.Contains(strings.Join(list, " "), "*") {
					t.Errorf("%s: a wildcard in %+v", name, rule)
				}
			}
			for _, verb := range []string{"escalate", "bind", "impersonate"} {
				if slices.Contains(rule.Verbs, verb) {
					t.Errorf("%s: %s in %+v", name, verb, rule)
				}
			}
		}
	}
}

// The labels of these roles add them to the built-in roles of a cluster. The controller for this does not run here, so
// the test repeats its selection.
func TestAggregatedRoles(t *testing.T) {
	apply(t, build(t, defaults))
	ours := typed[rbacv1.ClusterRole](t, build(t, defaults), "ClusterRole")
	// selected returns the rules that a built-in role aggregates by labels, directly and transitively.
	selected := func(role string) []rbacv1.PolicyRule {
		builtIn := &rbacv1.ClusterRole{}
		builtIn.Name = role
		rig.Succeeds(t, func() error { return kube.Get(t.Context(), client.ObjectKey{Name: role}, builtIn) })
		var rules []rbacv1.PolicyRule
		for _, r := range ours {
			for _, selector := range builtIn.AggregationRule.ClusterRoleSelectors {
				if matches(selector.MatchLabels, r.Labels) {
					rules = append(rules, r.Rules...)
				}
			}
		}
		return rules
	}
	for _, c := range []struct {
		role            string
		read            []string
		write, notWrite []string
	}{
		{"view", allKinds, nil, allKinds},
		{"edit", allKinds, nil, allKinds},
		{"admin", allKinds, nil, allKinds},
	} {
		rules := selected(c.role)
		expect := func(want bool, verbs, resources []string) {
			for _, verb := range verbs {
				for _, resource := range resources {
					if granted(rules, verb, resource) != want {
						t.Errorf("%s: %s %s: granted %t, want %t", c.role, verb, resource, !want, want)
					}
				}
			}
		}
		writes := []string{"create", "update", "patch", "delete", "deletecollection"}
		expect(true, []string{"get", "list", "watch"}, c.read)
		expect(true, writes, c.write)
		expect(false, writes, c.notWrite)
		for _, kind := range allKinds { // only the manager may do this
			expect(false, []string{"update", "patch"}, []string{kind + "/status"})
			expect(true, []string{"get"}, []string{kind + "/status"})
		}
	}
}

func granted(rules []rbacv1.PolicyRule, verb, resource string) bool {
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.APIGroups, ourGroup) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb)
	})
}

func matches(want, have map[string]string) bool {
	for k, v := range want {
		if have[k] != v {
			return false
		}
	}
	return true
}
