//go:build cluster

package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

const bundlePod = `
apiVersion: v1
kind: Pod
metadata: {name: checks}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: checks
      image: registry.example/workload:1
      volumeMounts: [{name: trusted, mountPath: /etc/trusted, readOnly: true}]
  volumes:
    - name: trusted
      projected:
        sources: [{clusterTrustBundle: {name: trusted-sensors, path: ca.crt}}]
`

// trustBundle checks a TrustedCA that publishes a ClusterTrustBundle, which kubelet projects into a Pod. The feature
// gates that Kubernetes requires for it are off at first, and then on.
func trustBundle(t *testing.T, n *node) {
	const in = "sensors"
	n.kubectl(t, "create", "namespace", in)
	n.grant(t, in, "MAC Data", `"*"`)
	n.kubectl(t, "create", "clusterrolebinding", "keyserver-manager-trust-bundles",
		"--clusterrole=keyserver-manager-trust-bundles", "--serviceaccount="+namespace+":keyserver-manager")
	n.deleteNamespaceAtEnd(t, in)
	t.Cleanup(func() { n.kubectl(t, "delete", "clusterrolebinding", "keyserver-manager-trust-bundles") })
	first, second := rig.NewCA(t, "Sensors"), rig.NewCA(t, "Sensors")
	declare := func(ca rig.CA) {
		n.apply(t, in, `
apiVersion: trust.keyserver.dev/v1beta1
kind: TrustedCA
metadata: {name: sensors}
spec:
  certificate:
    inline: |
      `+strings.ReplaceAll(strings.TrimSpace(ca.PEM), "\n", "\n      ")+`
  publish: {clusterTrustBundle: {name: trusted-sensors}}
`)
	}
	declare(first)
	n.awaitField(t, in, "trustedca/sensors", reason, "Unsupported") // API servers do not serve them by default

	gates := "ClusterTrustBundle=true,ClusterTrustBundleProjection=true"
	flags := func(component string, lines ...string) {
		t.Helper()
		rig.Must(t, os.WriteFile(filepath.Join(n.state, "flags", component), []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	}
	again := func() {
		t.Helper()
		rig.Must(t, n.component("kill", "TERM", "kubelet", "apiserver"))
		rig.Must(t, n.component("start", "apiserver", "kubelet"))
		n.kubectl(t, "wait", "--for=condition=Ready", "node/node", "--timeout=2m")
	}
	flags("apiserver", "--feature-gates="+gates, "--runtime-config=certificates.k8s.io/v1beta1/clustertrustbundles=true")
	flags("kubelet", "--feature-gates="+gates)
	t.Cleanup(func() {
		rig.Must(t, os.Remove(filepath.Join(n.state, "flags", "apiserver")))
		rig.Must(t, os.Remove(filepath.Join(n.state, "flags", "kubelet")))
		again()
	})
	again()
	n.kubectl(t, "-n", in, "annotate", "--overwrite", "trustedca/sensors", "trust.keyserver.dev/reconcile-requested-at="+time.Now().Format(time.RFC3339))
	n.awaitField(t, in, "trustedca/sensors", ready, "True")
	n.apply(t, in, bundlePod)
	n.kubectl(t, "-n", in, "wait", "--for=condition=Ready", "--timeout=2m", "pod/checks")
	projected := func() string {
		out, err := n.try("cat /etc/trusted/ca.crt", "kubectl", "-n", in, "exec", "-i", "checks", "--", "sh")
		rig.Must(t, err)
		return out
	}
	if got := projected(); strings.TrimSpace(got) != strings.TrimSpace(first.PEM) {
		t.Errorf("the Pod has another certificate:\n%s", got)
	}
	began := time.Now()
	declare(second)
	rig.Within(t, 2*rig.Patience, "the Pod has the certificate that took its place", func() bool {
		return strings.Contains(projected(), strings.TrimSpace(second.PEM))
	})
	logMeasurement(t, "a CA that was replaced is in the Pod after %s", seconds(time.Since(began)))
	n.undeclare(t, in) // before the API of the ClusterTrustBundle is disabled again
	if left := n.kubectl(t, "get", "clustertrustbundles", "-o", "name"); left != "" {
		t.Errorf("what was published is left: %s", left)
	}
}
