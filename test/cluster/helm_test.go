//go:build cluster

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/helm"
)

// earlier is the version of an earlier release. "helm package" builds it from the same chart and program, so that the
// test measures only the effect of the upgrade.
const earlier = "0.0.9"

// TestHelm is the life of a release of config/chart, by the commands of docs/install.md.
func TestHelm(t *testing.T) {
	n := newNode(t)
	n.deleteLeftNamespaces(t, "payments", namespace)
	withHelm(t, n)
	n.showWhenFailed(t)
	n.inOrder(t, []stage{
		{"the earlier release is installed", installRelease},
		{"it is tested", func(t *testing.T, n *node) { testRelease(t, n) }},
		{"a workload", workloadOfOnePod},
		{"upgrade", upgradeRelease},
		{"rollback", rollBackRelease},
		{"uninstall", uninstallRelease},
	})
}

// withHelm puts a Helm for this cluster into PATH.
func withHelm(t *testing.T, n *node) {
	t.Helper()
	directory := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nexec %s --kubeconfig %s/admin.conf \"$@\"\n", helm.Program(t), n.state)
	rig.Must(t, os.WriteFile(filepath.Join(directory, "helm"), []byte(script), 0o700))
	t.Setenv("PATH", directory+":"+os.Getenv("PATH"))
	rig.Must(t, os.WriteFile(filepath.Join(n.work, "values.yaml"), []byte(n.values(t)), 0o600))
	n.shell(t, "helm package config/chart --version "+earlier+" --app-version "+earlier)
	n.run(t, "ctr", "-n", "k8s.io", "images", "tag", "--force", image+":"+release, image+":v"+earlier)
}

// values returns the values of docs/install.md without the parts that this cluster lacks, with the tag of the chart.
func (n *node) values(t *testing.T) string {
	t.Helper()
	text := n.fragment(t, "image:")
	for _, without := range []string{"  tag: v0.1.0\n", "  KEYSERVER_OIDC_ISSUER: https://issuer.example/cluster\n", "monitoring:\n  create: true # needs Prometheus' operator\n"} {
		if !strings.Contains(text, without) {
			t.Fatalf("the values of docs/install.md have no %q", without)
		}
		text = strings.Replace(text, without, "", 1)
	}
	return text
}

// runs fails the test unless the containers of the Pod run a version.
func (n *node) runs(t *testing.T, version string) {
	t.Helper()
	n.kubectl(t, "-n", namespace, "rollout", "status", "deployment/keyserver", "--timeout=3m")
	if got := n.field(t, namespace, "deployment/keyserver", "{.spec.template.spec.containers[*].image}"); strings.Count(got, image+":v"+version) != 2 {
		t.Errorf("the containers have the images %s, want version %s", got, version)
	}
	n.awaitField(t, "default", "keyserver/default", ready, "True")
}

func installRelease(t *testing.T, n *node) {
	n.volumes(t, "helm-1")
	commands := n.blocks(t, "install.md", "Install with Helm", 2)
	n.shell(t, commands[0], "keyserver config/chart ", "keyserver keyserver-operator-"+earlier+".tgz --values values.yaml ")
	n.shell(t, commands[1])
	n.runs(t, earlier)
}

// testRelease runs "helm test", which fails with a reason if the key server is not ready.
func testRelease(t *testing.T, n *node) {
	out := n.shell(t, n.blocks(t, "install.md", "Test the release", 1)[0])
	if !strings.Contains(out, "Phase:          Succeeded") {
		t.Errorf("helm test says:\n%s", out)
	}
	if left := n.kubectl(t, "-n", namespace, "get", "pods", "-o", "name"); strings.Contains(left, "keyserver-test") {
		t.Errorf("a test that succeeded leaves its Pod: %s", left)
	}
}

func upgradeRelease(t *testing.T, n *node) {
	fresh, patient := n.ask(t, "helm"), n.ask(t, "helm-patient", "-retries", "8")
	n.shell(t, "helm upgrade keyserver config/chart --namespace keyserver-system --reuse-values")
	n.runs(t, strings.TrimPrefix(release, "v"))
	testRelease(t, n)
	logMeasurement(t, "helm upgrade: %s", fresh.end(t))
	s := patient.end(t)
	logMeasurement(t, "helm upgrade, for a client that repeats: %s", s)
	if s.Failed != 0 {
		t.Errorf("a client that repeats saw the upgrade: %s", s)
	}
	n.computesTheSame(t)
}

func rollBackRelease(t *testing.T, n *node) {
	patient := n.ask(t, "rollback", "-retries", "8")
	n.shell(t, "helm rollback keyserver --namespace keyserver-system")
	n.runs(t, earlier)
	testRelease(t, n)
	s := patient.end(t)
	logMeasurement(t, "helm rollback, for a client that repeats: %s", s)
	if s.Failed != 0 {
		t.Errorf("a client that repeats saw the rollback: %s", s)
	}
	n.computesTheSame(t)
	// Without a reachable key server "helm test" fails, and does not wait.
	n.kubectl(t, "-n", namespace, "scale", "deployment/keyserver", "--replicas=0")
	n.kubectl(t, "-n", namespace, "wait", "--for=delete", "pod", "--selector=trust.keyserver.dev/api=true", "--timeout=2m")
	if out, err := n.try("", "bash", "-ec", n.blocks(t, "install.md", "Test the release", 1)[0]); err == nil {
		t.Errorf("helm test succeeds without a key server:\n%s", out)
	}
	n.kubectl(t, "-n", namespace, "delete", "pod/keyserver-test", "--ignore-not-found")
	n.kubectl(t, "-n", namespace, "scale", "deployment/keyserver", "--replicas=1")
	n.runs(t, earlier)
}

// uninstallRelease follows docs/uninstall.md, with its changes for a Helm release.
func uninstallRelease(t *testing.T, n *node) {
	n.shell(t, n.blocks(t, "uninstall.md", "Uninstall and delete the declared trust", 3)[0],
		"kubectl delete -k config/default --ignore-not-found --timeout=5m\n", "helm uninstall keyserver --namespace keyserver-system &&\n  kubectl delete -k config/crd\n")
	if left := n.kubectl(t, "get", "crds", "-o", "name"); strings.Contains(left, "keyserver.dev") {
		t.Errorf("definitions are left:\n%s", left)
	}
	n.awaitField(t, namespace, "persistentvolumeclaim/keyserver-data", "{.status.phase}", "Bound")
	n.deleteLeftNamespaces(t, "payments", namespace)
}
