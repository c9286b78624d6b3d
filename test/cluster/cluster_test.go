//go:build cluster

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/markdown"
)

// TestAnInstallation runs the stages of one installation of config/default. Each stage needs the previous ones, so that
// the first failure ends the test.
func TestAnInstallation(t *testing.T) {
	n := newNode(t)
	n.deleteLeftNamespaces(t, "payments", namespace)
	n.showWhenFailed(t)
	n.inOrder(t, []stage{
		{"the image has its name on the node", imageIsNamed},
		{"without a volume the Pod waits", withoutVolume},
		{"install", install},
		{"a workload", workload},
		{"kill -9 of the manager", killManager},
		{"kill -9 of the API", killAPI},
		{"the Pod is deleted", deletePod},
		{"kubelet is restarted", restartKubelet},
		{"the manager in back-off", managerInBackOff},
		{"another image", anotherImage},
		{"a namespace is deleted", deleteNamespace},
		{"a namespace is deleted after its grant", deleteNamespaceWithoutGrant},
		{"uninstall", uninstall},
	})
}

// TestSmoke has the stages that run for each change.
func TestSmoke(t *testing.T) {
	n := newNode(t)
	n.deleteLeftNamespaces(t, "payments", namespace)
	n.showWhenFailed(t)
	n.inOrder(t, []stage{
		{"the image has its name on the node", imageIsNamed},
		{"install", func(t *testing.T, n *node) { own(t, n); install(t, n) }},
		{"a workload", workload},
		{"kill -9 of the API", killAPI},
		{"uninstall", uninstall},
	})
}

// The imported image has the name that docs/install.md, "Build, sign and name the images", gives to the manifests.
func imageIsNamed(t *testing.T, n *node) {
	names := n.run(t, "ctr", "-n", "k8s.io", "images", "ls", "-q")
	if want := image + ":" + release; !strings.Contains("\n"+names, "\n"+want+"\n") {
		t.Errorf("no image is called %s:\n%s", want, names)
	}
}

// own writes the kustomization of docs/install.md without the parts that this cluster lacks: the Prometheus operator
// and another certificate issuer.
func own(t *testing.T, n *node) {
	page, err := os.ReadFile(filepath.Join(n.root, "docs", "install.md"))
	rig.Must(t, err)
	_, rest, found := strings.Cut(string(page), "```yaml\n")
	text, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("docs/install.md shows no kustomization")
	}
	for _, without := range []string{
		"components:\n  - config/prometheus # needs Prometheus' operator; leave it out otherwise\n",
		"      - KEYSERVER_OIDC_ISSUER=https://issuer.example/cluster\n",
	} {
		if !strings.Contains(text, without) {
			t.Fatalf("the kustomization of docs/install.md has no %q", without)
		}
		text = strings.Replace(text, without, "", 1)
	}
	rig.Must(t, os.WriteFile(filepath.Join(n.work, "kustomization.yaml"), []byte(text), 0o600))
}

// The problem and the remedy of docs/install.md for a cluster without a volume provisioner.
func withoutVolume(t *testing.T, n *node) {
	own(t, n)
	mark := []string{"kubectl", "annotate", "--overwrite", "storageclass/directories", "storageclass.kubernetes.io/is-default-class=false"}
	n.run(t, mark...)
	n.kubectl(t, "apply", "-k", "config/volume")
	n.kubectl(t, "apply", "-k", ".")
	rig.Soon(t, "the Pod says that its claim has no volume", func() bool {
		out, err := n.try("", "kubectl", "-n", namespace, "get", "pods", "-o", `jsonpath={.items[*].status.conditions[?(@.type=="PodScheduled")].message}`)
		return err == nil && strings.Contains(out, "unbound immediate PersistentVolumeClaims")
	})
	// Deleting the namespace would also delete the Pod that waits for the volume. The CRDs stay: a busy cluster takes
	// minutes to delete them, and the next step applies them again.
	n.kubectl(t, "-n", namespace, "delete", "deployment/keyserver", "--timeout=2m")
	n.kubectl(t, "delete", "-k", "config/volume", "--timeout=2m")
	mark[len(mark)-1] = strings.Replace(mark[len(mark)-1], "false", "true", 1)
	n.run(t, mark...)
}

// install runs the commands of docs/install.md.
func install(t *testing.T, n *node) {
	text, err := os.ReadFile(filepath.Join(n.root, "docs", "install.md"))
	rig.Must(t, err)
	var commands []string
	for _, b := range markdown.Blocks(string(text)) {
		if b.Heading == "Install in one Pod" {
			commands = append(commands, b.Text)
		}
	}
	if len(commands) < 2 || !strings.Contains(commands[0], "openid-configuration") {
		t.Fatalf("docs/install.md begins with other commands: %q", commands)
	}
	if _, err := n.try("set -euo pipefail\n"+commands[0], "bash"); err != nil {
		t.Fatal(err)
	}
	first := strings.Split(strings.TrimSpace(commands[1]), "\n")
	if len(first) != 4 || !strings.HasPrefix(first[1], "kubectl apply -k config/default ") {
		t.Fatalf("docs/install.md installs by other commands: %q", first)
	}
	first[1] = "kubectl apply -k ." // "or the directory of your kustomization"
	begun := time.Now()
	availableAfter := make(chan time.Duration, 1)
	for i, command := range first {
		if _, err := n.try("", "bash", "-ec", command); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			go func() {
				for deadline := begun.Add(rig.Patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
					if out, _ := n.try("", "kubectl", "-n", namespace, "get", "deployment/keyserver", "-o", "jsonpath="+available); out == "True" {
						availableAfter <- time.Since(begun)
						return
					}
				}
				availableAfter <- 0
			}()
		}
	}
	readyAfter := time.Since(begun)
	if after := <-availableAfter; after == 0 {
		t.Error("the Deployment is not Available")
	} else {
		logMeasurement(t, "install to Available %s, to KeyServer Ready %s", seconds(after), seconds(readyAfter))
	}
	for _, rest := range commands[2:] {
		if strings.Contains(rest, "create token") {
			token, err := n.try("", "bash", "-ec", rest)
			rig.Must(t, err)
			if strings.Count(token, ".") != 2 {
				t.Errorf("no token was made")
			}
			continue
		}
		out, err := n.try("set -euo pipefail\n"+rest, "bash")
		rig.Must(t, err)
		if strings.Contains(rest, "message-signer") && !strings.Contains(out, `"mac":"`) {
			t.Errorf("the Pod of the trial prints no MAC:\n%s", out)
		}
	}
	for _, trial := range []string{"samples/workload", "samples", "access/publish"} { // "To undo the trial"
		n.kubectl(t, "delete", "-k", filepath.Join("config", trial), "--timeout=2m")
	}
	n.document(t, "install.md", strings.NewReplacer(), "Monitor and troubleshoot")
}

// workload runs the commands of docs/workloads.md, from the grant to the refused requests.
func workload(t *testing.T, n *node) {
	replace := strings.NewReplacer("curlimages/curl:8.17.0", "registry.example/workload:1")
	n.document(t, "workloads.md", replace, "Give the namespace a grant", "Declare role, principal and key", "Run the Pod", "Call the key server", "Use an agent instead of credential code", "Find out why a request failed")
	a := n.ask(t, "quiet")
	time.Sleep(2 * time.Second) // any duration suffices: nothing is broken
	if s := a.end(t); s.Failed != 0 {
		t.Errorf("nothing is broken, and %s", s)
	}
}

// containerID returns the id of a container in the Pod of the product.
func (n *node) containerID(t *testing.T, container string) string {
	t.Helper()
	id := n.kubectl(t, "-n", namespace, "get", "pods", "-l", "app.kubernetes.io/name=keyserver", "-o",
		`jsonpath={.items[0].status.containerStatuses[?(@.name=="`+container+`")].containerID}`)
	return strings.TrimPrefix(id, "containerd://")
}

func (n *node) kill(t *testing.T, container string) {
	t.Helper()
	n.run(t, "ctr", "-n", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", n.containerID(t, container))
}

// awaitRestarted waits until both containers of the Pod are ready, and the container has a new instance.
func (n *node) awaitRestarted(t *testing.T, container, before string) {
	t.Helper()
	rig.Soon(t, "another "+container+" runs", func() bool {
		out, err := n.try("", "kubectl", "-n", namespace, "get", "pods", "-l", "app.kubernetes.io/name=keyserver", "-o",
			`jsonpath={.items[0].status.containerStatuses[?(@.name=="`+container+`")].containerID}`)
		return err == nil && out != "" && !strings.HasSuffix(out, before)
	})
	n.kubectl(t, "-n", namespace, "wait", "--for=condition=Ready", "pod", "-l", "app.kubernetes.io/name=keyserver", "--timeout=2m")
}

// The API accepts new connections in every state of the manager. The manager is killed until kubelet reports
// CrashLoopBackOff for it.
func managerInBackOff(t *testing.T, n *node) {
	a := n.ask(t, "backoff")
	waiting := func() bool {
		out, err := n.try("", "kubectl", "-n", namespace, "get", "pods", "-l", "app.kubernetes.io/name=keyserver", "-o",
			`jsonpath={.items[0].status.containerStatuses[?(@.name=="manager")].state.waiting.reason}`)
		return err == nil && out == "CrashLoopBackOff"
	}
	rig.Soon(t, "kubelet lets the manager wait", func() bool {
		if waiting() {
			return true
		}
		_, _ = n.try("", "ctr", "-n", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", n.containerID(t, "manager"))
		return waiting()
	})
	if is := n.kubectl(t, "-n", namespace, "get", "pods", "-l", "app.kubernetes.io/name=keyserver", "-o", `jsonpath={.items[0].status.conditions[?(@.type=="Ready")].status}`); is != "False" {
		t.Errorf("the Pod's Ready is %s while a container waits: nothing was shown", is)
	}
	began := time.Now()
	rig.Soon(t, "kubelet starts the manager again", func() bool { return !waiting() })
	s := a.end(t)
	logMeasurement(t, "manager in back-off for another %s: %s", seconds(time.Since(began)), s)
	if s.Failed != 0 {
		t.Errorf("the manager was in back-off, and %s", s)
	}
	n.kubectl(t, "-n", namespace, "wait", "--for=condition=Ready", "pod", "-l", "app.kubernetes.io/name=keyserver", "--timeout=5m")
}

func killManager(t *testing.T, n *node) {
	a := n.ask(t, "manager")
	before := n.containerID(t, "manager")
	n.kill(t, "manager")
	n.awaitRestarted(t, "manager", before)
	s := a.end(t)
	logMeasurement(t, "kill -9 of the manager: %s", s)
	if s.Failed != 0 {
		t.Errorf("the manager was killed, and %s", s)
	}
	n.awaitField(t, "default", "keyserver/default", ready, "True")
}

func killAPI(t *testing.T, n *node) {
	fresh, patient := n.ask(t, "api", "-every", "20ms"), n.ask(t, "api-patient", "-retries", "8")
	before := n.containerID(t, "api")
	n.kill(t, "api")
	n.awaitRestarted(t, "api", before)
	n.awaitField(t, "default", "keyserver/default", ready, "True")
	logMeasurement(t, "kill -9 of the API: %s", fresh.end(t))
	// Requests in flight when it was killed are not repeated, because they may have counted.
	logMeasurement(t, "kill -9 of the API, for a client that repeats: %s", patient.end(t))
}

func deletePod(t *testing.T, n *node) {
	fresh, patient := n.ask(t, "delete", "-every", "20ms"), n.ask(t, "delete-patient", "-retries", "8")
	n.kubectl(t, "-n", namespace, "delete", "pod", "-l", "app.kubernetes.io/name=keyserver")
	n.awaitField(t, namespace, "deployment/keyserver", available, "True")
	n.awaitField(t, "default", "keyserver/default", ready, "True")
	logMeasurement(t, "Pod deleted: %s", fresh.end(t))
	s := patient.end(t)
	logMeasurement(t, "Pod deleted, for a client that repeats: %s", s)
	if s.Failed != 0 {
		t.Errorf("a client that repeats saw that the Pod was deleted: %s", s)
	}
	n.settled(t)
}

// settled waits until the Service forwards only to the one Pod, also in the packet rules of the node. Otherwise the
// previous step could disturb the next one.
func (n *node) settled(t *testing.T) {
	t.Helper()
	rig.Soon(t, "the Service has one address", func() bool {
		out, err := n.try("", "kubectl", "-n", namespace, "get", "endpointslices", "-l", "kubernetes.io/service-name=keyserver",
			"-o", "jsonpath={.items[*].endpoints[*].addresses[*]}")
		return err == nil && len(strings.Fields(out)) == 1
	})
	rig.Succeeds(t, func() error {
		_, err := n.inPod(`set -e; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
			curl --silent --show-error --fail --max-time 1 --output /dev/null --cacert /etc/receipts-key/ca.crt "$(cat /etc/receipts-key/url)/api/health"
		done`)
		return err
	})
}

// Pods keep running without kubelet.
func restartKubelet(t *testing.T, n *node) {
	a := n.ask(t, "kubelet")
	before := n.containerID(t, "api")
	n.run(t, filepath.Join(n.root, "hack/cluster/kill.sh"), "KILL", "kubelet")
	n.run(t, filepath.Join(n.root, "hack/cluster/start.sh"), "kubelet")
	// The new kubelet has updated the status of the node. Before that, exec into a Pod does not work.
	n.kubectl(t, "wait", "--for=condition=Ready", "node/node", "--timeout=2m")
	s := a.end(t)
	logMeasurement(t, "kubelet killed and started: %s", s)
	if s.Failed != 0 {
		t.Errorf("kubelet was restarted, and %s", s)
	}
	if after := n.containerID(t, "api"); after != before {
		t.Error("kubelet was restarted, and the API with it")
	}
}

// anotherImage deploys another tag, as an upgrade does. Both tags are the same program, so that the step measures only
// the effect of the deployment.
func anotherImage(t *testing.T, n *node) {
	fresh, patient := n.ask(t, "image", "-every", "20ms"), n.ask(t, "image-patient", "-retries", "8")
	n.run(t, "ctr", "-n", "k8s.io", "images", "tag", "--force", image+":"+release, image+":v0.1.1")
	file := filepath.Join(n.work, "kustomization.yaml")
	text, err := os.ReadFile(file)
	rig.Must(t, err)
	rig.Must(t, os.WriteFile(file, []byte(strings.Replace(string(text), "newTag: "+release, "newTag: v0.1.1", 1)), 0o600))
	n.kubectl(t, "apply", "-k", ".")
	n.kubectl(t, "-n", namespace, "rollout", "status", "deployment/keyserver", "--timeout=2m")
	n.awaitField(t, "default", "keyserver/default", ready, "True")
	if got := n.field(t, namespace, "deployment/keyserver", "{.spec.template.spec.containers[*].image}"); strings.Count(got, ":v0.1.1") != 2 {
		t.Errorf("the containers have the images %s", got)
	}
	logMeasurement(t, "another image: %s", fresh.end(t))
	s := patient.end(t)
	logMeasurement(t, "another image, for a client that repeats: %s", s)
	if s.Failed != 0 {
		t.Errorf("a client that repeats saw the change of the image: %s", s)
	}
	n.settled(t)
}

// uninstall follows docs/uninstall.md until the keys are deleted.
func uninstall(t *testing.T, n *node) {
	replace := strings.NewReplacer("config/default", ".")
	text, err := os.ReadFile(filepath.Join(n.root, "docs", "uninstall.md"))
	rig.Must(t, err)
	taken := false
	for _, b := range markdown.Blocks(string(text)) {
		if b.Heading == "Uninstall and delete the declared trust" && !taken {
			taken = true // the other blocks of the section delete keys permanently
			if _, err := n.try("set -euo pipefail\n"+replace.Replace(b.Text), "bash"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !taken {
		t.Fatal("docs/uninstall.md does not say how to delete the declared trust")
	}
	if left := n.kubectl(t, "get", "crds", "-o", "name"); strings.Contains(left, "keyserver.dev") {
		t.Errorf("definitions are left:\n%s", left)
	}
	n.awaitField(t, namespace, "persistentvolumeclaim/keyserver-data", "{.status.phase}", "Bound")
	n.document(t, "uninstall.md", replace, "Delete every key")
	rig.Succeeds(t, func() error {
		if out, err := n.try("", "kubectl", "get", "namespace", namespace); err == nil {
			return fmt.Errorf("the namespace is left: %s", out)
		}
		return nil
	})
}
