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

// TestTwoNodes is the scaled-out form on two nodes, of which one is drained, and then cut off
// and comes back. The database and the workload are on the first.
func TestTwoNodes(t *testing.T) {
	n := newNode(t)
	n.forgets(t, "payments", namespace)
	withDatabase(t, n)
	t.Cleanup(func() {
		if t.Failed() {
			return // to be looked at
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

// spread waits until each node has a replica.
func (n *node) spread(t *testing.T) {
	t.Helper()
	n.whole(t)
	if on := n.ofAPI(t, "{.items[*].spec.nodeName}"); !slices.Contains(on, "node") || !slices.Contains(on, second) {
		t.Fatalf("the replicas are on %q: one node has none", on)
	}
}

// leader is the Pod of the manager that leads, and its node.
func (n *node) leader(t *testing.T) (pod, on string) {
	t.Helper()
	holder := n.field(t, namespace, "lease/manager.trust.keyserver.dev", "{.spec.holderIdentity}")
	if pod, _, _ = strings.Cut(holder, "_"); pod == "" {
		return "", "" // one has gone, and no other has come
	}
	on, err := n.try("", "kubectl", "-n", namespace, "get", "pod", pod, "--ignore-not-found", "-o", "jsonpath={.spec.nodeName}")
	rig.Must(t, err)
	return pod, on
}

// aRole declares a role of some operations in the namespace that may do so.
func (n *node) aRole(t *testing.T, operations string) {
	t.Helper()
	n.apply(t, "default", `
apiVersion: trust.keyserver.dev/v1alpha1
kind: Role
metadata: {name: cut-off}
spec: {roleName: Cut Off, operations: [`+operations+`]}
`)
}

// verified waits until the role is what was declared last.
func (n *node) verified(t *testing.T) {
	t.Helper()
	n.kubectl(t, "-n", "default", "wait", "--for=jsonpath={.status.conditions[?(@.type==\"Ready\")].observedGeneration}="+
		n.field(t, "default", "role.trust.keyserver.dev/cut-off", "{.metadata.generation}"), "role.trust.keyserver.dev/cut-off", "--timeout=5m")
	n.kubectl(t, "-n", "default", "wait", "--for=condition=Ready", "role.trust.keyserver.dev/cut-off", "--timeout=5m")
}

// cutOff has the second node go silent, with a replica and the manager that leads: nobody
// refuses anything there, and kube-controller-manager waits before it believes that.
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
	time.Sleep(2 * time.Second) // what fails from here on is counted, too
	s, held := fresh.end(t), patient.end(t)
	figure(t, "two nodes, one cut off: a change is verified by the other manager after %s, the Service leads there no more after %s: %s", seconds(led), seconds(gone), s)
	figure(t, "two nodes, one cut off, for a client that repeats: %s", held)
	silence := []string{"i/o timeout", "no route to host", "context deadline exceeded"} // the last, of what was under way
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

// drainSecond moves what is there to the first node, and nobody sees it.
func drainSecond(t *testing.T, n *node) {
	n.spread(t)
	a := n.ask(t, "drain-second", "-workers", "8")
	n.kubectl(t, "drain", second, "--delete-emptydir-data", "--ignore-daemonsets", "--timeout=5m")
	n.whole(t)
	n.kubectl(t, "-n", namespace, "rollout", "status", "deployment/keyserver", "--timeout=5m")
	s := a.end(t)
	figure(t, "two nodes, one is drained: %s", s)
	if s.Failed != 0 {
		t.Errorf("a node was drained, and %s", s)
	}
	// What is made anew goes to the node that has less.
	n.kubectl(t, "uncordon", second)
	for _, deployment := range []string{"keyserver-api", "keyserver"} {
		n.kubectl(t, "-n", namespace, "rollout", "restart", "deployment/"+deployment)
		n.kubectl(t, "-n", namespace, "rollout", "status", "deployment/"+deployment, "--timeout=5m")
	}
}
