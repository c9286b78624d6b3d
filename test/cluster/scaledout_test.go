//go:build cluster

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/markdown"
)

// TestScaledOut installs, breaks and uninstalls config/overlays/postgres, with PostgreSQL in a Pod.
func TestScaledOut(t *testing.T) {
	n := newNode(t)
	n.deleteLeftNamespaces(t, "payments", namespace)
	withDatabase(t, n)
	n.showWhenFailed(t)
	n.inOrder(t, []stage{
		{"install", installScaledOut},
		{"a workload", signer},
		{"another image", replaceReplicas},
		{"kill -9 of a replica", killReplica},
		{"kill -9 of PostgreSQL", killDatabase},
		{"the node is drained", drain},
		{"uninstall", uninstallScaledOut},
	})
}

// blocks returns the command blocks of a page under a heading. It fails the test unless there are count of them.
func (n *node) blocks(t *testing.T, page, heading string, count int) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(n.root, "docs", page))
	rig.Must(t, err)
	var found []string
	for _, b := range markdown.Blocks(string(text)) {
		if b.Heading == heading {
			found = append(found, b.Text)
		}
	}
	if len(found) != count {
		t.Fatalf("docs/%s has %d blocks of commands under %q, and %d are known", page, len(found), heading, count)
	}
	return found
}

// shell runs commands of a document after the replacements.
func (n *node) shell(t *testing.T, commands string, replace ...string) string {
	t.Helper()
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(commands, replace[i]) {
			t.Fatalf("%q is not among the commands:\n%s", replace[i], commands)
		}
	}
	out, err := n.try("set -euo pipefail\n"+strings.NewReplacer(replace...).Replace(commands), "bash")
	rig.Must(t, err)
	return out
}

// fragment returns the YAML block of docs/install.md that has a line.
func (n *node) fragment(t *testing.T, line string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(n.root, "docs", "install.md"))
	rig.Must(t, err)
	for _, part := range strings.Split(string(text), "```yaml\n")[1:] {
		part, _, _ = strings.Cut(part, "```")
		if strings.Contains(part, line+"\n") {
			return part
		}
	}
	t.Fatalf("docs/install.md shows no yaml with %q", line)
	return ""
}

// images sets the image of the node in a kustomization.
const images = `images:
  - name: keyserver-operator
    newName: ` + image + `
    newTag: `

// kustomize writes a kustomization into a directory next to config.
func (n *node) kustomize(t *testing.T, directory, text string) {
	t.Helper()
	rig.Must(t, os.MkdirAll(filepath.Join(n.work, directory), 0o700))
	rig.Must(t, os.WriteFile(filepath.Join(n.work, directory, "kustomization.yaml"), []byte(text), 0o600))
}

// replicas is the directory of the kustomization of the scaled-out form.
const replicas = "replicas"

// nameScaledOut writes the kustomization that docs/install.md shows for a database with a private CA, with an image.
func (n *node) nameScaledOut(t *testing.T, tag string) {
	t.Helper()
	own := n.fragment(t, "  - config/overlays/postgres")
	n.kustomize(t, replicas, strings.ReplaceAll(own, "- config/", "- ../config/")+images+tag+"\n")
}

// makeSecrets creates the Secrets that an administrator creates first, as docs/install.md says.
func makeSecrets(t *testing.T, n *node) {
	n.shell(t, n.blocks(t, "install.md", "Install replicas on PostgreSQL", 2)[0])
	n.kubectl(t, "-n", namespace, "create", "secret", "generic", "keyserver-database-ca", "--from-file=ca.crt=postgres/ca.crt")
}

func installScaledOut(t *testing.T, n *node) {
	makeSecrets(t, n)
	n.nameScaledOut(t, release)
	commands := strings.Split(strings.TrimSpace(n.blocks(t, "install.md", "Install replicas on PostgreSQL", 2)[1]), "\n")
	if len(commands) != 3 || !strings.HasPrefix(commands[0], "kubectl apply -k config/overlays/postgres ") {
		t.Fatalf("docs/install.md installs the scaled-out form by other commands: %q", commands)
	}
	commands[0] = "kubectl apply -k " + replicas // "or the directory of your kustomization"
	begun := time.Now()
	n.shell(t, commands[0])
	availableAfter := make(chan time.Duration, 1)
	go func() {
		defer close(availableAfter)
		for end := begun.Add(rig.Patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if out, _ := n.try("", "kubectl", "-n", namespace, "get", "deployment/keyserver-api", "-o", "jsonpath="+available+"{.status.readyReplicas}"); out == "True2" {
				availableAfter <- time.Since(begun)
				return
			}
		}
	}()
	n.shell(t, strings.Join(commands[1:], "\n"))
	readyAfter := time.Since(begun)
	after, is := <-availableAfter
	if !is {
		t.Error("the Deployment has not two replicas that are ready")
	}
	logMeasurement(t, "scaled out, install to both replicas ready %s, to KeyServer Ready %s", seconds(after), seconds(readyAfter))
	n.kubectl(t, "-n", namespace, "rollout", "status", "deployment/keyserver", "--timeout=2m")
}

// signer runs the workload of docs/workloads.md.
func signer(t *testing.T, n *node) {
	replace := strings.NewReplacer("curlimages/curl:8.17.0", "registry.example/workload:1",
		// As docs/workloads.md says for this form.
		`get configmap keyserver-ca -o go-template='{{index .data "ca.crt"}}'`, `get secret keyserver-tls -o go-template='{{index .data "ca.crt" | base64decode}}'`)
	n.document(t, "workloads.md", replace, "Give the namespace a grant", "Declare role, principal and key", "Run the Pod", "Call the key server", "Find out why a request failed")
}

// ofAPI returns a field of each Pod of the key server.
func (n *node) ofAPI(t *testing.T, path string) []string {
	t.Helper()
	return strings.Fields(n.kubectl(t, "-n", namespace, "get", "pods", "-l", "trust.keyserver.dev/api=true", "-o", "jsonpath="+path))
}

// awaitReplicas waits until all replicas have the current template and are ready, and the Service forwards only to them.
func (n *node) awaitReplicas(t *testing.T) {
	t.Helper()
	n.kubectl(t, "-n", namespace, "rollout", "status", "deployment/keyserver-api", "--timeout=3m")
	rig.Succeeds(t, func() error {
		pods, err := n.try("", "kubectl", "-n", namespace, "get", "pods", "-l", "trust.keyserver.dev/api=true", "-o", "jsonpath={.items[*].status.podIP}")
		if err != nil {
			return err
		}
		led, err := n.try("", "kubectl", "-n", namespace, "get", "endpointslices", "-l", "kubernetes.io/service-name=keyserver",
			"-o", "jsonpath={.items[*].endpoints[?(@.conditions.ready==true)].addresses[*]}")
		if err != nil {
			return err
		}
		a, b := strings.Fields(pods), strings.Fields(led)
		slices.Sort(a)
		slices.Sort(b)
		if len(a) != 2 || !slices.Equal(a, b) {
			return fmt.Errorf("the replicas are %q, and the Service leads to %q", a, b)
		}
		return nil
	})
}

// During a rolling update no request fails, even if the caller repeats nothing and uses a new
// connection for each.
func replaceReplicas(t *testing.T, n *node) {
	n.awaitReplicas(t)
	a := n.ask(t, "image", "-workers", "8")
	n.run(t, "ctr", "-n", "k8s.io", "images", "tag", "--force", image+":"+release, image+":v0.1.1")
	n.nameScaledOut(t, "v0.1.1")
	begun := time.Now()
	n.kubectl(t, "apply", "-k", replicas)
	n.awaitReplicas(t)
	took := time.Since(begun)
	for _, is := range n.ofAPI(t, "{.items[*].spec.containers[*].image}") {
		if is != image+":v0.1.1" {
			t.Errorf("a replica has the image %s", is)
		}
	}
	s := a.end(t)
	logMeasurement(t, "scaled out, another image for 2 replicas in %s: %s", seconds(took), s)
	if s.Failed != 0 {
		t.Errorf("the replicas were replaced, and %s", s)
	}
	n.kubectl(t, "-n", namespace, "rollout", "status", "deployment/keyserver", "--timeout=2m")
}

// Only two kinds of requests fail: connections that the kernel refuses for the dead replica, and requests in flight
// there.
func killReplica(t *testing.T, n *node) {
	n.awaitReplicas(t)
	fresh, patient := n.ask(t, "replica"), n.ask(t, "replica-patient", "-retries", "8")
	id := func() string { return n.ofAPI(t, "{.items[0].status.containerStatuses[0].containerID}")[0] }
	before := id()
	n.run(t, "ctr", "-n", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", strings.TrimPrefix(before, "containerd://"))
	rig.Soon(t, "another container of the replica runs", func() bool { return id() != before })
	n.awaitReplicas(t)
	s := fresh.end(t)
	logMeasurement(t, "scaled out, kill -9 of one of 2 replicas: %s", s)
	for why := range s.Why {
		if !slices.ContainsFunc([]string{"connection refused", "EOF", "connection reset by peer"}, func(kernel string) bool { return strings.HasSuffix(why, kernel) }) {
			t.Errorf("a replica was killed, and somebody was told %q", why)
		}
	}
	// Requests in flight when it was killed are not repeated, because they may have counted.
	logMeasurement(t, "scaled out, kill -9 of one of 2 replicas, for a client that repeats: %s", patient.end(t))
}

// Replicas respond as soon as PostgreSQL does.
func killDatabase(t *testing.T, n *node) {
	n.awaitReplicas(t)
	fresh, patient := n.ask(t, "database"), n.ask(t, "database-patient", "-retries", "8")
	again := n.accepts(t)
	id := n.field(t, "database", "pods", "{.items[0].status.containerStatuses[0].containerID}")
	killed := time.Now()
	n.run(t, "ctr", "-n", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", strings.TrimPrefix(id, "containerd://"))
	accepts, is := <-again
	if !is {
		t.Fatal("PostgreSQL does not come back")
	}
	n.awaitReplicas(t)
	n.awaitField(t, "default", "keyserver/default", ready, "True")
	s := fresh.end(t)
	if s.Failed == 0 {
		t.Error("no request failed without its database: nothing was shown")
	}
	last := s.Begun.Add(time.Duration(s.Last * float64(time.Second)))
	logMeasurement(t, "kill -9 of PostgreSQL, which was away for %s: the last failure %.2f s after it accepts again: %s", seconds(accepts.Sub(killed)), last.Sub(accepts).Seconds(), s)
	logMeasurement(t, "kill -9 of PostgreSQL, for a client that repeats: %s", patient.end(t))
}

// drain drains the only node. The disruption budget allows the eviction of one replica, and of the other only after a
// new replica is ready.
func drain(t *testing.T, n *node) {
	n.awaitReplicas(t)
	a := n.ask(t, "drain")
	before := n.ofAPI(t, "{.items[*].metadata.name}")
	t.Cleanup(func() { n.kubectl(t, "uncordon", "node") })
	out, err := n.try("", "kubectl", "drain", "node", "--pod-selector=trust.keyserver.dev/api=true", "--delete-emptydir-data", "--timeout=15s")
	if err == nil || !strings.Contains(err.Error(), "would violate the pod's disruption budget") {
		t.Errorf("nothing kept the second replica: %v\n%s", err, out)
	}
	left := slices.DeleteFunc(n.ofAPI(t, "{.items[?(@.status.phase==\"Running\")].metadata.name}"), func(name string) bool { return !slices.Contains(before, name) })
	if len(left) != 1 {
		t.Errorf("of the replicas %q there are %q", before, left)
	}
	n.kubectl(t, "uncordon", "node")
	n.awaitReplicas(t)
	s := a.end(t)
	logMeasurement(t, "scaled out, a replica is evicted: %s", s)
	if s.Failed != 0 {
		t.Errorf("a replica was evicted, and %s", s)
	}
}

func uninstallScaledOut(t *testing.T, n *node) { n.uninstall(t, replicas) }

// uninstall follows the first way of docs/uninstall.md, for the kustomization in a directory.
func (n *node) uninstall(t *testing.T, directory string) {
	t.Helper()
	n.shell(t, n.blocks(t, "uninstall.md", "Uninstall and delete the declared trust", 3)[0], "config/default", directory)
	if left := n.kubectl(t, "get", "crds", "-o", "name"); strings.Contains(left, "keyserver.dev") {
		t.Errorf("definitions are left:\n%s", left)
	}
	for _, kind := range []string{"deployments,services,serviceaccounts,configmaps,networkpolicies,roles,rolebindings,horizontalpodautoscalers", "clusterroles,clusterrolebindings"} {
		if left := n.kubectl(t, "get", kind, "--all-namespaces", "-l", "app.kubernetes.io/part-of=keyserver-operator", "-o", "name"); left != "" {
			t.Errorf("this is left:\n%s", left)
		}
	}
	n.deleteLeftNamespaces(t, "payments", "database", namespace)
}
