// Package policies converts NetworkPolicies to rules of nftables for the one node of hack/cluster, whose network cannot
// enforce them itself. Like most networks, the rules check a connection after a Service is resolved to a Pod.
//
// The engines that are Go modules queue packets to a program (NFQUEUE), which not every kernel with nftables supports.
package policies

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Table is the table of the rules.
const Table = "inet policies"

// Cluster has the objects that determine the rules.
type Cluster struct {
	Namespaces []corev1.Namespace
	Pods       []corev1.Pod
	Policies   []networkingv1.NetworkPolicy
}

// Rules returns a script for nft. It replaces the rules of an earlier script in one step.
//
// Probes of kubelet to a Pod are allowed, as Kubernetes requires: they come from the node itself, so that neither of
// the two hooks sees them. Connections from a Pod to the node pass the hook "input".
func (c Cluster) Rules() (string, error) {
	var out strings.Builder
	fmt.Fprintf(&out, "table %[1]s\ndelete table %[1]s\ntable %[1]s {\n", Table)
	for _, direction := range []networkingv1.PolicyType{networkingv1.PolicyTypeEgress, networkingv1.PolicyTypeIngress} {
		lines, err := c.chain(direction)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "chain %s {\n%s}\n", strings.ToLower(string(direction)), strings.Join(lines, ""))
	}
	out.WriteString("chain forward {\ntype filter hook forward priority filter\nct state established,related accept\njump egress\njump ingress\n}\n")
	out.WriteString("chain input {\ntype filter hook input priority filter\nct state established,related accept\njump egress\n}\n}\n")
	return out.String(), nil
}

// chain returns the rules of one direction. They accept traffic that a policy allows, and drop all other traffic of
// Pods that have a policy.
func (c Cluster) chain(direction networkingv1.PolicyType) ([]string, error) {
	var lines, isolated []string
	for _, policy := range c.Policies {
		if !slices.Contains(types(policy), direction) {
			continue
		}
		selected, err := c.selected(policy)
		if err != nil {
			return nil, fmt.Errorf("NetworkPolicy %s/%s: %w", policy.Namespace, policy.Name, err)
		}
		for _, pod := range selected {
			isolated = append(isolated, pod.Status.PodIP)
			allowed, err := c.allowed(policy, pod, direction)
			if err != nil {
				return nil, fmt.Errorf("NetworkPolicy %s/%s: %w", policy.Namespace, policy.Name, err)
			}
			lines = append(lines, allowed...)
		}
	}
	if len(isolated) > 0 {
		lines = append(lines, fmt.Sprintf("ip %s %s counter drop\n", own(direction), set(isolated)))
	}
	return lines, nil
}

// own returns the nft name for the policy's Pod: source or destination address.
func own(direction networkingv1.PolicyType) string {
	if direction == networkingv1.PolicyTypeEgress {
		return "saddr"
	}
	return "daddr"
}

func other(direction networkingv1.PolicyType) string {
	if direction == networkingv1.PolicyTypeEgress {
		return "daddr"
	}
	return "saddr"
}

// types returns the directions of a policy, or the defaults.
func types(policy networkingv1.NetworkPolicy) []networkingv1.PolicyType {
	switch {
	case len(policy.Spec.PolicyTypes) > 0:
		return policy.Spec.PolicyTypes
	case len(policy.Spec.Egress) > 0:
		return []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	}
	return []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
}

func (c Cluster) selected(policy networkingv1.NetworkPolicy) ([]corev1.Pod, error) {
	return c.pods(policy.Namespace, networkingv1.NetworkPolicyPeer{PodSelector: &policy.Spec.PodSelector})
}

// rule is an ingress or egress rule.
type rule struct {
	peers []networkingv1.NetworkPolicyPeer
	ports []networkingv1.NetworkPolicyPort
}

func rules(policy networkingv1.NetworkPolicy, direction networkingv1.PolicyType) []rule {
	var all []rule
	if direction == networkingv1.PolicyTypeEgress {
		for _, r := range policy.Spec.Egress {
			all = append(all, rule{r.To, r.Ports})
		}
		return all
	}
	for _, r := range policy.Spec.Ingress {
		all = append(all, rule{r.From, r.Ports})
	}
	return all
}

// allowed returns the rules for the traffic that a policy allows one Pod.
func (c Cluster) allowed(policy networkingv1.NetworkPolicy, pod corev1.Pod, direction networkingv1.PolicyType) ([]string, error) {
	var lines []string
	for _, r := range rules(policy, direction) {
		ends := []string{""} // no peers: any address
		if len(r.peers) > 0 {
			var err error
			if ends, err = c.ends(policy.Namespace, r.peers, other(direction)); err != nil {
				return nil, err
			}
		}
		ports, err := portsOf(r.ports, pod, direction)
		if err != nil {
			return nil, err
		}
		for _, end := range ends {
			for _, port := range ports {
				lines = append(lines, fmt.Sprintf("ip %s %s %s%sreturn\n", own(direction), pod.Status.PodIP, end, port))
			}
		}
	}
	return lines, nil
}

// ends returns nft matches for the other end of a connection. One match suffices.
func (c Cluster) ends(namespace string, peers []networkingv1.NetworkPolicyPeer, end string) ([]string, error) {
	var ends []string
	for _, peer := range peers {
		if b := peer.IPBlock; b != nil {
			match := fmt.Sprintf("ip %s %s ", end, b.CIDR)
			if len(b.Except) > 0 {
				match += fmt.Sprintf("ip %s != %s ", end, set(b.Except))
			}
			ends = append(ends, match)
			continue
		}
		pods, err := c.pods(namespace, peer)
		if err != nil {
			return nil, err
		}
		var addresses []string
		for _, pod := range pods {
			addresses = append(addresses, pod.Status.PodIP)
		}
		if len(addresses) > 0 {
			ends = append(ends, fmt.Sprintf("ip %s %s ", end, set(addresses)))
		}
	}
	return ends, nil
}

// pods returns the Pods with an IP address that match a peer. If the peer has no namespace
// selector, they are in the namespace of the policy.
func (c Cluster) pods(namespace string, peer networkingv1.NetworkPolicyPeer) ([]corev1.Pod, error) {
	selects := func(s *metav1.LabelSelector) (labels.Selector, error) {
		if s == nil {
			return labels.Everything(), nil
		}
		return metav1.LabelSelectorAsSelector(s)
	}
	those, err := selects(peer.PodSelector)
	if err != nil {
		return nil, err
	}
	in, err := selects(peer.NamespaceSelector)
	if err != nil {
		return nil, err
	}
	within := map[string]bool{}
	for _, n := range c.Namespaces {
		within[n.Name] = peer.NamespaceSelector == nil && n.Name == namespace || peer.NamespaceSelector != nil && in.Matches(labels.Set(n.Labels))
	}
	var all []corev1.Pod
	for _, pod := range c.Pods {
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed // its address may be reused
		if within[pod.Namespace] && those.Matches(labels.Set(pod.Labels)) && pod.Status.PodIP != "" && !pod.Spec.HostNetwork && !ended {
			all = append(all, pod)
		}
	}
	return all, nil
}

// portsOf returns nft matches for the port. One match suffices. A port name is that of the destination Pod; an unknown
// name matches nothing.
func portsOf(ports []networkingv1.NetworkPolicyPort, pod corev1.Pod, direction networkingv1.PolicyType) ([]string, error) {
	if len(ports) == 0 {
		return []string{""}, nil
	}
	var matches []string
	for _, p := range ports {
		protocol := corev1.ProtocolTCP
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		lower := strings.ToLower(string(protocol))
		switch {
		case p.Port == nil:
			matches = append(matches, "meta l4proto "+lower+" ")
		case p.Port.Type == intstr.Int && p.EndPort != nil:
			matches = append(matches, fmt.Sprintf("%s dport %d-%d ", lower, p.Port.IntVal, *p.EndPort))
		case p.Port.Type == intstr.Int:
			matches = append(matches, fmt.Sprintf("%s dport %d ", lower, p.Port.IntVal))
		case direction == networkingv1.PolicyTypeEgress:
			return nil, fmt.Errorf("egress to a port by its name (%s) is not enforced here: give its number", p.Port.StrVal)
		default:
			for _, container := range pod.Spec.Containers {
				for _, has := range container.Ports {
					if has.Name == p.Port.StrVal && (has.Protocol == protocol || has.Protocol == "" && protocol == corev1.ProtocolTCP) {
						matches = append(matches, fmt.Sprintf("%s dport %d ", lower, has.ContainerPort))
					}
				}
			}
		}
	}
	return matches, nil
}

// set formats addresses as a set of nft.
func set(addresses []string) string {
	sorted := slices.Compact(slices.Sorted(slices.Values(addresses)))
	return "{ " + strings.Join(sorted, ", ") + " }"
}
