package policies

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func pod(namespace, name, address, label string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": label}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "api", ContainerPort: 8443}}}}},
		Status:     corev1.PodStatus{PodIP: address},
	}
}

// A Pod without a rule is not isolated. So both missing and additional rules can allow too much.
func TestRules(t *testing.T) {
	ended := pod("a", "ended", "10.0.0.1", "other")
	ended.Status.Phase = corev1.PodSucceeded
	onNode := pod("a", "on-node", "10.99.0.2", "api")
	onNode.Spec.HostNetwork = true
	c := Cluster{
		Namespaces: []corev1.Namespace{
			{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
			{ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: map[string]string{"metrics": "true"}}},
		},
		Pods: []corev1.Pod{
			pod("a", "api", "10.0.0.1", "api"), pod("a", "other", "10.0.0.2", "other"), pod("b", "api", "10.0.0.3", "api"),
			pod("a", "waits", "", "api"), ended, onNode,
		},
	}
	for name, test := range map[string]struct{ policy, egress, ingress string }{
		"nothing": {
			`{podSelector: {}, policyTypes: [Ingress, Egress]}`,
			"ip saddr { 10.0.0.1, 10.0.0.2 } counter drop\n",
			"ip daddr { 10.0.0.1, 10.0.0.2 } counter drop\n",
		},
		"no types are ingress": {`{podSelector: {matchLabels: {app: api}}}`, "", "ip daddr { 10.0.0.1 } counter drop\n"},
		"no types, and a rule of egress": {
			`{podSelector: {matchLabels: {app: api}}, egress: [{}]}`,
			"ip saddr 10.0.0.1 return\nip saddr { 10.0.0.1 } counter drop\n",
			"ip daddr { 10.0.0.1 } counter drop\n",
		},
		"a port by its name, from every namespace": {
			`{podSelector: {matchLabels: {app: api}}, ingress: [{from: [{namespaceSelector: {}}], ports: [{port: api}]}]}`, "",
			"ip daddr 10.0.0.1 ip saddr { 10.0.0.1, 10.0.0.2, 10.0.0.3 } tcp dport 8443 return\nip daddr { 10.0.0.1 } counter drop\n",
		},
		"a name that the Pod has not": {
			`{podSelector: {matchLabels: {app: api}}, ingress: [{ports: [{port: peers}]}]}`, "", "ip daddr { 10.0.0.1 } counter drop\n",
		},
		"a name of another protocol": {
			`{podSelector: {matchLabels: {app: api}}, ingress: [{ports: [{port: api, protocol: UDP}]}]}`, "", "ip daddr { 10.0.0.1 } counter drop\n",
		},
		"Pods of another namespace": {
			`{podSelector: {matchLabels: {app: api}}, ingress: [{from: [{namespaceSelector: {matchLabels: {metrics: "true"}}, podSelector: {matchLabels: {app: api}}}]}]}`, "",
			"ip daddr 10.0.0.1 ip saddr { 10.0.0.3 } return\nip daddr { 10.0.0.1 } counter drop\n",
		},
		"Pods of its own namespace": {
			`{podSelector: {matchLabels: {app: api}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: other}}}], ports: [{port: 53, protocol: UDP}, {port: 1, endPort: 9}]}]}`,
			"ip saddr 10.0.0.1 ip daddr { 10.0.0.2 } udp dport 53 return\nip saddr 10.0.0.1 ip daddr { 10.0.0.2 } tcp dport 1-9 return\nip saddr { 10.0.0.1 } counter drop\n", "",
		},
		"peers of which there are none": {
			`{podSelector: {matchLabels: {app: api}}, ingress: [{from: [{podSelector: {matchLabels: {app: nobody}}}]}]}`, "", "ip daddr { 10.0.0.1 } counter drop\n",
		},
		"addresses": {
			`{podSelector: {matchLabels: {app: api}}, ingress: [{from: [{ipBlock: {cidr: 10.1.0.0/16, except: [10.1.2.0/24]}}]}]}`, "",
			"ip daddr 10.0.0.1 ip saddr 10.1.0.0/16 ip saddr != { 10.1.2.0/24 } return\nip daddr { 10.0.0.1 } counter drop\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			policy := networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p"}}
			if err := yaml.UnmarshalStrict([]byte(test.policy), &policy.Spec); err != nil {
				t.Fatal(err)
			}
			c.Policies = []networkingv1.NetworkPolicy{policy}
			got, err := c.Rules()
			if err != nil {
				t.Fatal(err)
			}
			for chain, want := range map[string]string{"egress": test.egress, "ingress": test.ingress} {
				_, rest, _ := strings.Cut(got, "chain "+chain+" {\n")
				is, _, _ := strings.Cut(rest, "}\nchain")
				if diff := cmp.Diff(want, is); diff != "" {
					t.Errorf("%s (-want +got):\n%s", chain, diff)
				}
			}
		})
	}
	c.Policies = []networkingv1.NetworkPolicy{{}}
	if err := yaml.Unmarshal([]byte(`{podSelector: {}, egress: [{ports: [{port: api}]}]}`), &c.Policies[0].Spec); err != nil {
		t.Fatal(err)
	}
	c.Policies[0].Namespace = "a"
	if _, err := c.Rules(); err == nil {
		t.Error("a port of egress by its name is passed over")
	}
}
