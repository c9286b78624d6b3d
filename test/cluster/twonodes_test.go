//go:build cluster

package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// second is the name of the node that joins.
const second = "second"

// TestTwoNodes is the scaled-out form on two nodes. One node is drained, then cut off and reconnected. The database and
// the workload are on the other node.
func TestTwoNodes(t *testing.T) {
	n := newNode(t)
	n.deleteLeftNamespaces(t, "payments", namespace)
	withDatabase(t, n)
	t.Cleanup(func() {
		if t.Failed() {
			return // for inspection
		}
		n.run(t, "env", "NODE=second", filepath.Join(n.root, "hack/cluster/down.sh"))
		n.kubectl(t, "delete", "node", second)
	})
	n.showWhenFailed(t)
	n.inOrder(t, []stage{
		{"a second node", func(t *testing.T, n *node) { rig.Must(t, n.component("second")) }},
		{"install", installScaledOut},
		{"a workload", func(t *testing.T, n *node) {
			n.kubectl(t, "cordon", second)
			signer(t, n)
			n.kubectl(t, "uncordon", second)
		}},
		{"the second node is drained", drainSecond},
		{"the second node is cut off", cutOff},
		{"uninstall", uninstallScaledOut},
	})
}

// onSecond runs a command on the network of the second node.
func (n *node) onSecond(t *testing.T, command ...string) {
	t.Helper()
	pid, err := os.ReadFile(filepath.Join(n.state, second, "init.pid"))
	rig.Must(t, err)
	n.run(t, append([]string{"nsenter", "--target", strings.TrimSpace(string(pid)), "--net", "--"}, command...)...)
}

// spread waits until all replicas are ready, and fails the test unless each node has one.
func (n *node) spread(t *testing.T) {
	t.Helper()
	n.awaitReplicas(t)
	if on := n.ofAPI(t, "{.items[*].spec.nodeName}"); !slices.Contains(on, "node") || !slices.Contains(on, second) {
		t.Fatalf("the replicas are on %q: one node has none", on)
	}
}

// leader returns the Pod of the leading manager and its node, or "" if there is none.
func (n *node) leader(t *testing.T) (pod, on string) {
	t.Helper()
	holder := n.field(t, namespace, "lease/manager.trust.keyserver.dev", "{.spec.holderIdentity}")
	if pod, _, _ = strings.Cut(holder, "_"); pod == "" {
		return "", "" // no manager leads at the moment
	}
	on, err := n.try("", "kubectl", "-n", namespace, "get", "pod", pod, "--ignore-not-found", "-o", "jsonpath={.spec.nodeName}")
	rig.Must(t, err)
	return pod, on
}

// aRole declares a role with some operations in a namespace that may declare roles.
func (n *node) aRole(t *testing.T, operations string) {
	t.Helper()
	n.apply(t, "default", `
apiVersion: trust.keyserver.dev/v1beta1
kind: Role
metadata: {name: cut-off}
spec: {roleName: Cut Off, operations: [`+operations+`]}
`)
}

// verified waits until the role on the key server is as last declared.
func (n *node) verified(t *testing.T) {
	t.Helper()
	n.kubectl(t, "-n", "default", "wait", "--for=jsonpath={.status.conditions[?(@.type==\"Ready\")].observedGeneration}="+
		n.field(t, "default", "role.trust.keyserver.dev/cut-off", "{.metadata.generation}"), "role.trust.keyserver.dev/cut-off", "--timeout=5m")
	n.kubectl(t, "-n", "default", "wait", "--for=condition=Ready", "role.trust.keyserver.dev/cut-off", "--timeout=5m")
}

// cutOff cuts the network of the second node, with a replica and the leading manager on it.
// Connections there time out instead of being refused, and kube-controller-manager waits before it
// declares the node lost.
func cutOff(t *testing.T, n *node) {
	n.spread(t)
	rig.Within(t, 5*time.Minute, "the manager on the second node leads", func() bool {
		pod, on := n.leader(t)
		if on == second {
			return true
		}
		if on != "" {
			n.kubectl(t, "-n", namespace, "delete", "pod", pod)
		}
		return false
	})
	n.aRole(t, "List Operations")
	n.verified(t)

	fresh, patient := n.ask(t, "cut", "-every", "50ms"), n.ask(t, "cut-patient", "-retries", "8")
	n.onSecond(t, "ip", "link", "set", "node0", "down")
	cut := time.Now()
	n.aRole(t, "List Operations, HMAC Data")
	n.verified(t)
	led := time.Since(cut)
	if _, on := n.leader(t); on == second {
		t.Error("the manager that nobody hears still leads")
	}
	rig.Within(t, 5*time.Minute, "the Service leads to one replica", func() bool {
		out, err := n.try("", "kubectl", "-n", namespace, "get", "endpointslices", "-l", "kubernetes.io/service-name=keyserver",
			"-o", "jsonpath={.items[*].endpoints[?(@.conditions.ready==true)].addresses[*]}")
		return err == nil && len(strings.Fields(out)) == 1
	})
	gone := time.Since(cut)
	time.Sleep(2 * time.Second) // to count only later failures
	s, held := fresh.end(t), patient.end(t)
	logMeasurement(t, "two nodes, one cut off: a change is verified by the other manager after %s, the Service leads there no more after %s: %s", seconds(led), seconds(gone), s)
	logMeasurement(t, "two nodes, one cut off, for a client that repeats: %s", held)
	silence := []string{"i/o timeout", "no route to host", "context deadline exceeded"} // in flight: the last one
	for why := range s.Why {
		if !slices.ContainsFunc(silence, func(end string) bool { return strings.HasSuffix(why, end) }) {
			t.Errorf("a node was cut off, and somebody was told %q", why)
		}
	}

	n.onSecond(t, "ip", "link", "set", "node0", "up")
	n.onSecond(t, "ip", "route", "add", "default", "via", "10.99.0.2")
	n.kubectl(t, "wait", "--for=condition=Ready", "node/"+second, "--timeout=5m")
	n.spread(t)
	n.kubectl(t, "-n", namespace, "rollout", "status", "deployment/keyserver", "--timeout=5m")
	n.aRole(t, "List Operations")
	n.verified(t)
	n.kubectl(t, "-n", "default", "delete", "role.trust.keyserver.dev/cut-off", "--timeout=2m")
}

// drainSecond moves the Pods of the second node to the first node without a failed request.
func drainSecond(t *testing.T, n *node) {
	n.spread(t)
	a := n.ask(t, "drain-second", "-workers", "8")
	n.kubectl(t, "drain", second, "--delete-emptydir-data", "--ignore-daemonsets", "--timeout=5m")
	n.awaitReplicas(t)
	n.kubectl(t, "-n", namespace, "rollout", "status", "deployment/keyserver", "--timeout=5m")
	s := a.end(t)
	logMeasurement(t, "two nodes, one is drained: %s", s)
	if s.Failed != 0 {
		t.Errorf("a node was drained, and %s", s)
	}
	// New Pods go to the node with fewer Pods.
	n.kubectl(t, "uncordon", second)
	for _, deployment := range []string{"keyserver-api", "keyserver"} {
		n.kubectl(t, "-n", namespace, "rollout", "restart", "deployment/"+deployment)
		n.kubectl(t, "-n", namespace, "rollout", "status", "deployment/"+deployment, "--timeout=5m")
	}
}
