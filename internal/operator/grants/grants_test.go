package grants

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

func TestMatches(t *testing.T) {
	for glob, names := range map[string]struct{ is, isNot []string }{
		"a":         {[]string{"a"}, []string{"", "A", "aa", "b"}},
		"*":         {[]string{"", "a", "a/b c"}, nil},
		"a*":        {[]string{"a", "ab/c"}, []string{"", "ba", "Ab"}},
		"*a":        {[]string{"a", "ba"}, []string{"ab"}},
		"a*a":       {[]string{"aa", "aba"}, []string{"a", "ab"}},
		"a*b*c":     {[]string{"abc", "axbxc", "abbc"}, []string{"acb", "ac", "abcd"}},
		"*ab*ab*":   {[]string{"abab", "xabyabz"}, []string{"ab", "aab"}},
		"/team/*":   {[]string{"/team/", "/team/a/b/"}, []string{"/", "/team", "/other/team/"}},
		"[a]?.\\d+": {[]string{"[a]?.\\d+"}, []string{"a", "ab.1"}},
	} {
		for _, n := range names.is {
			if !matches(glob, n) {
				t.Errorf("%q is not for %q", glob, n)
			}
		}
		for _, n := range names.isNot {
			if matches(glob, n) {
				t.Errorf("%q is for %q", glob, n)
			}
		}
	}
}

func TestGrants(t *testing.T) {
	hmac := Operation{ID: "0000000000000304", Name: "HMAC Data", Duty: "key use"}
	read := Operation{ID: "0000000000000401", Name: "Read Audit", Duty: "audit"}
	strange := Operation{ID: "Fly", Name: "Fly"}
	to := func(namespaces ...string) v1beta1.GrantedNamespaces {
		return v1beta1.GrantedNamespaces{Names: namespaces}
	}
	role := func(name, operations string, names ...string) v1beta1.Grant {
		g := v1beta1.Grant{Name: name, Namespaces: to("a"), Kinds: []v1beta1.GrantedKind{"Role"}, Names: names}
		if operations != "" {
			g.Operations = strings.Split(operations, ",")
		}
		return g
	}
	adopting := func(g v1beta1.Grant) v1beta1.Grant { g.Adopt = true; return g }
	for scenario, tc := range map[string]struct {
		reason string
		grants []v1beta1.Grant
		kind   string
		reach  Scope
		want   string // name of the grant that covers the object
		says   string // part of the refusal if no grant covers it
	}{
		"none at all": {
			reason: "nothing is allowed by omission",
			kind:   "Role", says: `KeyServer "ks" has no grant for namespace "a"`,
		},
		"one to others": {
			reason: "a grant is for its namespaces", kind: "Role", says: "has no grant for namespace",
			grants: []v1beta1.Grant{{Name: "g", Namespaces: to("b", "ab"), Kinds: []v1beta1.GrantedKind{"Role"}, Names: []string{"*"}}},
		},
		"a selector of all": {
			reason: "an empty selector picks every namespace", kind: "Role", want: "g",
			grants: []v1beta1.Grant{{Name: "g", Namespaces: v1beta1.GrantedNamespaces{Selector: &metav1.LabelSelector{}}, Kinds: []v1beta1.GrantedKind{"Role"}, Names: []string{"*"}}},
		},
		"another kind": {
			reason: "a kind that is not listed is not granted", kind: "TrustedCA", says: `grant "g", the nearest, lacks the kind TrustedCA;`,
			grants: []v1beta1.Grant{role("g", "", "*")},
		},
		"any kind": {
			reason: "a peer is asked by whoever has a grant of anything", want: "g",
			grants: []v1beta1.Grant{role("g", "", "x")},
		},
		"another name": {
			reason: "every name has to be covered", kind: "Role", reach: Scope{Names: []Name{{"x"}, {"y"}}},
			grants: []v1beta1.Grant{role("g", "", "x")}, says: `lacks the name "y";`,
		},
		"a name by its other spelling": {
			reason: "one spelling of a name is enough", kind: "Role", reach: Scope{Names: []Name{{"x", "id/1"}}},
			grants: []v1beta1.Grant{role("g", "", "id/*")}, want: "g",
		},
		"an operation by its name, its id in capitals, its duty": {
			reason: "a grant may spell operations as a Role does", kind: "Role", reach: Scope{Operations: []Operation{hmac, read}},
			grants: []v1beta1.Grant{role("g", "HMAC Data,0000000000000401", "*")}, want: "g",
		},
		"a duty": {
			reason: "a duty is all of its operations and no other", kind: "Role", reach: Scope{Operations: []Operation{hmac, read}},
			grants: []v1beta1.Grant{role("g", "duty:key use", "*")}, says: `lacks the operation "Read Audit" (duty audit);`,
		},
		"an operation without a duty": {
			reason: "what the key server does not know belongs to no duty", kind: "Role", reach: Scope{Operations: []Operation{strange}},
			grants: []v1beta1.Grant{role("g", "duty:,duty:key use", "*")}, says: `lacks the operation "Fly";`,
		},
		"halves": {
			reason: "grants do not add up", kind: "Role", reach: Scope{Names: []Name{{"x"}}, Operations: []Operation{read}},
			grants: []v1beta1.Grant{role("names", "", "x"), role("operations", "duty:audit", "y")}, says: `grant "names", the nearest, lacks the operation "Read Audit"`,
		},
		"the nearest is not the first": {
			reason: "the message names the grant that lacks least", kind: "Role", reach: Scope{Names: []Name{{"x"}}, Operations: []Operation{hmac, read}},
			grants: []v1beta1.Grant{role("first", "duty:audit,duty:key use", "y"), role("second", "", "x"), role("third", "duty:audit", "x")},
			says:   `grant "third", the nearest, lacks the operation "HMAC Data"`,
		},
		"one that adopts": {
			reason: "of two that cover it, the one that adopts counts", kind: "Role", reach: Scope{Names: []Name{{"x"}}},
			grants: []v1beta1.Grant{role("plain", "", "*"), adopting(role("adopting", "", "x"))}, want: "adopting",
		},
	} {
		t.Run(scenario, func(t *testing.T) {
			ks := &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: "ks"}, Spec: v1beta1.KeyServerSpec{Grants: tc.grants}}
			v, err := Evaluate(t.Context(), nil, ks, "a", tc.kind, tc.reach)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case tc.want != "" && (v.Grant == nil || v.Grant.Name != tc.want || v.Refusal != nil):
				t.Errorf("%s: %+v, %v", tc.reason, v.Grant, v.Refusal)
			case tc.want == "" && (v.Grant != nil || v.Refusal == nil):
				t.Errorf("%s: granted by %+v", tc.reason, v.Grant)
			case tc.want == "" && (v.Refusal.Reason != v1beta1.ReasonAccessDenied || !strings.Contains(v.Refusal.Message, tc.says)):
				t.Errorf("%s: %s", tc.reason, v.Refusal)
			}
		})
	}
}
