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
)

// TestFlux installs the manifests of docs/install.md, "Flux", from a Git repository with Flux's own
// controllers. They and the repository are processes on the network of the node.
func TestFlux(t *testing.T) {
	n := newNode(t)
	n.deleteLeftNamespaces(t, "payments", namespace)
	withFlux(t, n)
	n.showWhenFailed(t)
	n.inOrder(t, []stage{
		{"installed from Git", installFromGit},
		{"what waits is waited for", waitsForWhatWaits},
		{"a mistake is named, and mended by a commit", mendByCommit},
		{"what leaves Git leaves the key server", pruneByCommit},
		{"the way out", leaveFlux},
		{"a HelmRelease is installed", installHelmRelease},
		{"a commit upgrades it", upgradeHelmRelease},
		{"values that the chart refuses", refuseValues},
		{"the HelmRelease is deleted", deleteHelmRelease},
	})
}

const (
	ofFlux = "flux-system"
	onMain = "main@sha1:" // the prefix of a commit id in Flux
	says   = `{.status.conditions[?(@.type=="Ready")].message}`
)

// withFlux starts Flux, and a Git repository with the files of the test.
func withFlux(t *testing.T, n *node) {
	t.Helper()
	controllers := []string{"source-controller", "kustomize-controller", "helm-controller"}
	flux := n.managesFromGit(t, "RIG_FLUX", ofFlux, controllers...)
	storage := rig.FreeAddress(t, "127.0.0.1")
	for _, controller := range controllers {
		var flags []string
		if controller == "source-controller" {
			flags = []string{"--storage-addr=" + storage, "--storage-adv-addr=" + storage, "--storage-path=" + t.TempDir()}
		}
		n.controller(t, filepath.Join(flux, controller), flags...)
	}

	url := n.repository(t)
	n.apply(t, "", `
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: platform, namespace: flux-system}
spec:
  url: `+url+`
  ref: {branch: main}
  interval: 1s
`)
	t.Cleanup(func() {
		if !t.Failed() {
			n.kubectl(t, "-n", ofFlux, "delete", "gitrepository/platform", "--timeout=2m")
			return
		}
		out, err := n.try("", "kubectl", "-n", ofFlux, "get", "gitrepositories,helmcharts,kustomizations,helmreleases", "-o", "wide")
		t.Logf("%s%v", out, err)
	})
}

// controller runs a controller of Flux until the test ends.
func (n *node) controller(t *testing.T, program string, flags ...string) {
	t.Helper()
	n.process(t, []string{"RUNTIME_NAMESPACE=" + ofFlux}, program,
		append(flags, "--log-encoding=console", "--metrics-addr=0", "--health-addr=0", "--requeue-dependency=1s")...)
}

// applied waits until a Kustomization is Ready at a commit.
func (n *node) applied(t *testing.T, kustomization, commit string) {
	t.Helper()
	rig.Within(t, 3*rig.Patience, "the Kustomization "+kustomization+" is Ready with "+commit, func() bool {
		out, err := n.try("", "kubectl", "-n", ofFlux, "get", "kustomization/"+kustomization, "-o", "jsonpath="+ready+" {.status.lastAppliedRevision}")
		return err == nil && out == "True "+commit
	})
}

// installFromGit applies the manifests of docs/install.md. A Kustomization becomes Ready only when
// the objects that it applied are Ready.
func installFromGit(t *testing.T, n *node) {
	n.volumes(t, "flux-1")
	n.kustomize(t, onePod, "resources: [../config/default, ../config/access]\n"+images+release+"\n")
	n.declare(t, "sensors.yaml", trustedCA("sensors", inline(rig.NewCA(t, "Sensors").PEM)))
	commit := onMain + n.commit(t, "An installation, and what it declares")
	const path = "path: ./config/default # or the directory of your kustomization\n"
	text := n.fragmentUnder(t, "Flux")
	if !strings.Contains(text, path) {
		t.Fatalf("docs/install.md has Flux apply something else:\n%s", text)
	}
	begun := time.Now()
	n.apply(t, "", strings.Replace(text, path, "path: ./"+onePod+"\n", 1))
	n.applied(t, "keyserver", commit)
	if is := n.field(t, namespace, "deployment/keyserver", available); is != "True" {
		t.Errorf("Flux says Ready, and Available of the Deployment is %q", is)
	}
	n.applied(t, "keyserver-object", commit)
	if is := n.field(t, "default", "keyserver/default", ready); is != "True" {
		t.Errorf("Flux says Ready, and Ready of the KeyServer is %q", is)
	}
	n.applied(t, "trust", commit)
	n.allReady(t)
	n.applied(t, "keyserver-volume", commit)
	logMeasurement(t, "Flux installs, until what is declared is Ready: %s", seconds(time.Since(begun)))
}

// waitsForWhatWaits checks that Flux does not report an error for an object whose dependency does not exist yet.
func waitsForWhatWaits(t *testing.T, n *node) {
	before := n.field(t, ofFlux, "kustomization/trust", "{.status.lastAppliedRevision}")
	n.declare(t, "later.yaml", trustedCA("later", "    configMapKeyRef: {name: later, key: ca.crt}\n"))
	commit := onMain + n.commit(t, "A CA of which the certificate comes later")
	n.awaitField(t, "default", "trustedca/later", reason, "DependencyNotReady")
	n.awaitField(t, ofFlux, "kustomization/trust", `{.status.conditions[?(@.type=="Reconciling")].message}`, "Running health checks for revision "+commit+" with a timeout of 5m0s")
	if is := n.field(t, ofFlux, "kustomization/trust", ready+" {.status.lastAppliedRevision}"); is != "Unknown "+before {
		t.Errorf("an object waits, and the Kustomization is %q", is)
	}
	n.kubectl(t, "-n", "default", "create", "configmap", "later", "--from-literal=ca.crt="+rig.NewCA(t, "Later").PEM)
	n.applied(t, "trust", commit)
	n.allReady(t)
	n.kubectl(t, "-n", "default", "delete", "configmap/later")
}

// mendByCommit checks that Flux reports a mistake immediately with its object, and that the next commit corrects it.
func mendByCommit(t *testing.T, n *node) {
	n.declare(t, "mistaken.yaml", trustedCA("mistaken", inline(noCertificate)))
	n.commit(t, "A certificate that is none")
	begun := time.Now()
	rig.Succeeds(t, func() error {
		got, err := n.try("", "kubectl", "-n", ofFlux, "get", "kustomization/trust", "-o", "jsonpath="+ready+" "+says)
		if err == nil && (!strings.HasPrefix(got, "False ") || !strings.Contains(got, "stalled resources: [TrustedCA/default/mistaken status: 'Failed']")) {
			err = fmt.Errorf("the Kustomization is %s", got)
		}
		return err
	})
	logMeasurement(t, "Flux names an object with a mistake %s after its commit", seconds(time.Since(begun)))
	n.awaitField(t, "default", "trustedca/mistaken", reason, "InvalidSpec")
	mended := rig.NewCA(t, "Mended")
	n.declare(t, "mistaken.yaml", trustedCA("mistaken", inline(mended.PEM)))
	commit := onMain + n.commit(t, "The certificate that was meant")
	begun = time.Now()
	n.applied(t, "trust", commit)
	n.allReady(t)
	logMeasurement(t, "Flux is Ready %s after the commit that mends it", seconds(time.Since(begun)))
	n.trusts(t, "Mended", true)
}

// pruneByCommit checks that removing a file first deletes the object on the key server, and then the object in the
// cluster.
func pruneByCommit(t *testing.T, n *node) {
	n.declare(t, "mistaken.yaml", "")
	commit := onMain + n.commit(t, "It is not trusted any more")
	n.applied(t, "trust", commit)
	n.kubectl(t, "-n", "default", "wait", "--for=delete", "trustedca/mistaken", "--timeout=2m")
	n.trusts(t, "Mended", false)
	n.allReady(t)
}

// leaveFlux uninstalls Flux's objects.
func leaveFlux(t *testing.T, n *node) { n.leavesGit(t, ofFlux, "kustomization") }

// released waits until the HelmRelease is Ready with the chart of a commit.
func (n *node) released(t *testing.T, commit string) {
	t.Helper()
	_, hash, _ := strings.Cut(commit, ":")
	version := strings.TrimPrefix(release, "v") + "+" + hash[:12]
	rig.Within(t, 3*rig.Patience, "the HelmRelease is Ready with "+version, func() bool {
		out, err := n.try("", "kubectl", "-n", ofFlux, "get", "helmrelease/keyserver", "-o", "jsonpath="+ready+" {.status.history[0].status} {.status.history[0].chartVersion}")
		return err == nil && strings.HasPrefix(out, "True deployed "+version)
	})
}

// withKeyServer has the values that a separate commit adds. They change the KeyServer that the manager has created.
const withKeyServer = "keyServer:\n  spec:\n    ownership: {succeeds: [earlier]}\n"

// setValues writes the values of the release.
func (n *node) setValues(t *testing.T, text string) {
	t.Helper()
	rig.Must(t, os.WriteFile(filepath.Join(n.work, "values.yaml"), []byte(text), 0o600))
}

func installHelmRelease(t *testing.T, n *node) {
	n.volumes(t, "flux-2")
	n.kubectl(t, "apply", "-k", "config/volume")
	n.setValues(t, n.values(t))
	commit := onMain + n.commit(t, "The values of a release")
	begun := time.Now()
	n.apply(t, "", n.fragment(t, "kind: HelmRelease"))
	n.released(t, commit)
	if is := n.field(t, namespace, "deployment/keyserver", available); is != "True" {
		t.Errorf("Flux says Ready, and Available of the Deployment is %q", is)
	}
	logMeasurement(t, "Flux installs the chart, until its HelmRelease is Ready: %s", seconds(time.Since(begun)))
}

// upgradeHelmRelease changes the KeyServer, and then a setting.
func upgradeHelmRelease(t *testing.T, n *node) {
	n.setValues(t, n.values(t)+withKeyServer)
	commit := onMain + n.commit(t, "Its KeyServer")
	n.released(t, commit)
	if is := n.field(t, "default", "keyserver/default", ready); is != "True" {
		t.Errorf("Flux says Ready, and Ready of the KeyServer is %q", is)
	}
	if is := n.field(t, "default", "keyserver/default", "{.spec.ownership.succeeds[0]}"); is != "earlier" {
		t.Errorf("the release does not change the KeyServer: %q", is)
	}
	n.setValues(t, strings.Replace(n.values(t), "KEYSERVER_LOG_LEVEL: debug", "KEYSERVER_LOG_LEVEL: warn", 1)+withKeyServer)
	commit = onMain + n.commit(t, "Less to read")
	n.released(t, commit)
	n.runs(t, strings.TrimPrefix(release, "v"))
	settings := n.field(t, namespace, "deployment/keyserver", `{.spec.template.spec.containers[0].envFrom[0].configMapRef.name}`)
	if is := n.field(t, namespace, "configmap/"+settings, "{.data.KEYSERVER_LOG_LEVEL}"); is != "warn" {
		t.Errorf("the setting is %q", is)
	}
}

// refuseValues checks that the previous release stays, and that the next commit repairs it.
func refuseValues(t *testing.T, n *node) {
	n.setValues(t, n.values(t)+withKeyServer+"form: another\n")
	n.commit(t, "A form that there is not")
	rig.Succeeds(t, func() error {
		got, err := n.try("", "kubectl", "-n", ofFlux, "get", "helmrelease/keyserver", "-o", "jsonpath="+ready+" "+says)
		if err == nil && (!strings.HasPrefix(got, "False ") || !strings.Contains(got, "/form")) {
			err = fmt.Errorf("the HelmRelease is %s", got)
		}
		return err
	})
	n.awaitField(t, "default", "keyserver/default", ready, "True")
	n.setValues(t, n.values(t)+withKeyServer)
	n.released(t, onMain+n.commit(t, "The form of before"))
}

// deleteHelmRelease follows docs/uninstall.md, but deletes a HelmRelease instead of calling "helm uninstall".
func deleteHelmRelease(t *testing.T, n *node) {
	n.shell(t, n.blocks(t, "uninstall.md", "Uninstall and delete the declared trust", 3)[0],
		"kubectl delete -k config/default ", "kubectl -n "+ofFlux+" delete helmrelease/keyserver --timeout=5m &&\n  kubectl delete -k config/crd ")
	if left := n.kubectl(t, "-n", namespace, "get", "deployments,services,configmaps", "-l", "app.kubernetes.io/part-of=keyserver-operator", "-o", "name"); left != "" {
		t.Errorf("the HelmRelease has left:\n%s", left)
	}
	if left := n.kubectl(t, "get", "crds", "-o", "name"); strings.Contains(left, "trust.keyserver.dev") {
		t.Errorf("definitions are left:\n%s", left)
	}
	n.awaitField(t, namespace, "persistentvolumeclaim/keyserver-data", "{.status.phase}", "Bound")
	n.deleteLeftNamespaces(t, namespace)
}
