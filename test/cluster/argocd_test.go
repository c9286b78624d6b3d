//go:build cluster

package cluster

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestArgoCD installs the manifests of docs/install.md, "Argo CD", from a Git repository with Argo CD's
// own controller and repository server. They and the repository are processes on the network of the node.
func TestArgoCD(t *testing.T) {
	n := newNode(t)
	n.deleteLeftNamespaces(t, "payments", namespace)
	a := withArgoCD(t, n)
	n.showWhenFailed(t)
	n.inOrder(t, []stage{
		{"installed from Git", a.install},
		{"what waits is no mistake", a.waits},
		{"a mistake is named, and mended by a commit", a.mend},
		{"what somebody changes in the cluster is put back", a.heals},
		{"what leaves Git leaves the key server", a.prunes},
		{"the way out", a.leaves},
	})
}

const ofArgoCD = "argocd"

// argoCD is an Argo CD installation that syncs from the repository of the node.
type argoCD struct{ url string }

// argoCDObjects has the objects of an Argo CD installation, without its CRDs and processes.
const argoCDObjects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: argocd-cm, namespace: argocd, labels: {app.kubernetes.io/part-of: argocd}}
data: {application.instanceLabelKey: argocd.argoproj.io/instance}
---
apiVersion: v1
kind: Secret
metadata: {name: argocd-secret, namespace: argocd, labels: {app.kubernetes.io/part-of: argocd}}
stringData: {server.secretkey: of-no-use-here}
---
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: default, namespace: argocd}
spec:
  sourceRepos: ["*"]
  destinations: [{server: "*", namespace: "*"}]
  clusterResourceWhitelist: [{group: "*", kind: "*"}]
`

// withArgoCD starts Argo CD, and a Git repository with the files of the test.
func withArgoCD(t *testing.T, n *node) argoCD {
	t.Helper()
	argocd := n.managesFromGit(t, "RIG_ARGOCD", ofArgoCD, "application", "appproject")
	n.apply(t, "", argoCDObjects)
	n.shell(t, n.blocks(t, "install.md", "Argo CD", 1)[0])

	redis, repositories := rig.FreeAddress(t, "127.0.0.1"), rig.FreeAddress(t, "127.0.0.1")
	port := func(address string) string {
		_, port, err := net.SplitHostPort(address)
		rig.Must(t, err)
		return port
	}
	n.process(t, nil, filepath.Join(argocd, "redis-server"), "--bind", "127.0.0.1", "--port", port(redis), "--save", "", "--appendonly", "no")
	as := func(name string, flags ...string) {
		n.process(t, []string{"ARGOCD_BINARY_NAME=" + name, "ARGOCD_FAKE_IN_CLUSTER=true", "ARGOCD_GPG_ENABLED=false", "PATH=" + argocd + ":" + os.Getenv("PATH")},
			filepath.Join(argocd, "argocd"), append(flags, "--redis", redis, "--logformat", "text", "--metrics-port", port(rig.FreeAddress(t, "127.0.0.1")))...)
	}
	as("argocd-repo-server", "--address", "127.0.0.1", "--port", port(repositories), "--disable-tls", "--metrics-address", "127.0.0.1", "--revision-cache-expiration", "1s")
	as("argocd-application-controller", "--namespace", ofArgoCD, "--repo-server", repositories, "--repo-server-plaintext",
		"--app-resync", "2", "--app-resync-jitter", "0", "--persist-resource-health")
	t.Cleanup(func() {
		if t.Failed() {
			out, err := n.try("", "kubectl", "-n", ofArgoCD, "get", "applications", "-o", "yaml")
			t.Logf("%s%v", out, err)
		}
	})
	return argoCD{n.repository(t)}
}

const synced = "{.status.sync.status} {.status.health.status} {.status.sync.revision}"

// awaitHealthy waits until Argo CD shows an Application as Synced and Healthy at a commit.
func (argoCD) awaitHealthy(t *testing.T, n *node, application, commit string) {
	t.Helper()
	rig.Within(t, 3*rig.Patience, application+" is Synced and Healthy with "+commit, func() bool {
		out, err := n.try("", "kubectl", "-n", ofArgoCD, "get", "application/"+application, "-o", "jsonpath="+synced)
		return err == nil && out == "Synced Healthy "+commit
	})
}

// says waits until Argo CD reports a status of the object, with a reason.
func (argoCD) says(t *testing.T, n *node, object, status, why string) {
	t.Helper()
	path := `{.status.resources[?(@.name=="` + object + `")].health.status}`
	rig.Succeeds(t, func() error {
		got, err := n.try("", "kubectl", "-n", ofArgoCD, "get", "application/trust", "-o", "jsonpath={.status.health.status} "+path)
		if err == nil && got != status+" "+status {
			err = fmt.Errorf("the Application, and %s, are %q, want %s", object, got, status)
		}
		return err
	})
	n.awaitField(t, "default", "trustedca/"+object, reason, why)
}

// install applies the manifests of docs/install.md.
func (a argoCD) install(t *testing.T, n *node) {
	n.volumes(t, "argocd")
	n.kustomize(t, onePod, "resources: [../config/default, ../config/access]\n"+images+release+"\n")
	n.declare(t, "sensors.yaml", trustedCA("sensors", inline(rig.NewCA(t, "Sensors").PEM)))
	commit := n.commit(t, "An installation, and what it declares")
	text := n.fragmentUnder(t, "Argo CD")
	for from, to := range map[string]string{
		"repoURL: https://git.example/platform.git":                        "repoURL: " + a.url,
		"path: config/default} # or the directory of your kustomization\n": "path: " + onePod + "}\n",
	} {
		if !strings.Contains(text, from) {
			t.Fatalf("docs/install.md has Argo CD apply something else than %q:\n%s", from, text)
		}
		text = strings.ReplaceAll(text, from, to)
	}
	begun := time.Now()
	n.apply(t, "", text)
	for _, application := range []string{"keyserver-volume", "keyserver", "keyserver-object", "trust"} {
		a.awaitHealthy(t, n, application, commit)
	}
	logMeasurement(t, "Argo CD installs, until all four Applications are Synced and Healthy: %s", seconds(time.Since(begun)))
	n.awaitField(t, namespace, "deployment/keyserver", available, "True")
	n.awaitField(t, "default", "keyserver/default", ready, "True")
	n.allReady(t)
	n.trusts(t, "Sensors", true)
}

// waits checks that Argo CD does not report an error for an object whose dependency does not exist yet.
func (a argoCD) waits(t *testing.T, n *node) {
	n.declare(t, "later.yaml", trustedCA("later", "    configMapKeyRef: {name: later, key: ca.crt}\n"))
	commit := n.commit(t, "A CA of which the certificate comes later")
	a.says(t, n, "later", "Progressing", "DependencyNotReady")
	n.kubectl(t, "-n", "default", "create", "configmap", "later", "--from-literal=ca.crt="+rig.NewCA(t, "Later").PEM)
	a.awaitHealthy(t, n, "trust", commit)
	n.allReady(t)
	n.kubectl(t, "-n", "default", "delete", "configmap/later")
}

// mend checks that Argo CD reports a mistake immediately with its object, and that the next commit corrects it.
func (a argoCD) mend(t *testing.T, n *node) {
	n.declare(t, "mistaken.yaml", trustedCA("mistaken", inline(noCertificate)))
	n.commit(t, "A certificate that is none")
	begun := time.Now()
	a.says(t, n, "mistaken", "Degraded", "InvalidSpec")
	logMeasurement(t, "Argo CD names an object with a mistake %s after its commit", seconds(time.Since(begun)))
	n.declare(t, "mistaken.yaml", trustedCA("mistaken", inline(rig.NewCA(t, "Mended").PEM)))
	commit := n.commit(t, "The certificate that was meant")
	begun = time.Now()
	a.awaitHealthy(t, n, "trust", commit)
	n.allReady(t)
	logMeasurement(t, "Argo CD is Healthy %s after the commit that mends it", seconds(time.Since(begun)))
	n.trusts(t, "Mended", true)
}

// heals checks that Argo CD reverts changes in the cluster, and that the key server then has the reverted state.
func (a argoCD) heals(t *testing.T, n *node) {
	n.kubectl(t, "-n", "default", "delete", "trustedca/mistaken", "--timeout=1m")
	n.awaitField(t, "default", "trustedca/mistaken", ready, "True")
	n.trusts(t, "Mended", true)
}

// prunes checks that removing a file first deletes the object on the key server, and then the object in the cluster.
func (a argoCD) prunes(t *testing.T, n *node) {
	n.declare(t, "mistaken.yaml", "")
	commit := n.commit(t, "It is not trusted any more")
	a.awaitHealthy(t, n, "trust", commit)
	n.kubectl(t, "-n", "default", "wait", "--for=delete", "trustedca/mistaken", "--timeout=2m")
	n.trusts(t, "Mended", false)
	n.allReady(t)
}

// leaves uninstalls Argo CD's objects.
func (argoCD) leaves(t *testing.T, n *node) { n.leavesGit(t, ofArgoCD, "application") }
