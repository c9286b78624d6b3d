//go:build cluster

package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestPods is one installation that Pods of other namespaces use, while parts that it and they need
// fail. To run one part, run the steps "install" and "uninstall" with it:
//
//	make test-cluster TEST_FLAGS="-run 'TestPods/^(install|kms|uninstall)$$'"
func TestPods(t *testing.T) {
	n := newNode(t)
	n.showWhenFailed(t)
	n.inOrder(t, []stage{
		{"install", func(t *testing.T, n *node) { smallVolumes(t, n); own(t, n); install(t, n) }},
		{"agent", agent},
		{"network policies", networkPolicies},
		{"peers", peers},
		{"a ClusterTrustBundle", trustBundle},
		{"Prometheus", monitored},
		{"kms", kms},
		{"uninstall", uninstall},
	})
}

// smallVolumes limits the size of each volume of the node, so that a volume can be full although the disk of the
// machine is not. It also releases the volumes of an earlier installation.
func smallVolumes(t *testing.T, n *node) {
	for _, name := range strings.Fields(n.kubectl(t, "get", "persistentvolumes", "-o", `jsonpath={.items[?(@.status.phase=="Released")].metadata.name}`)) {
		n.mustOnNode(t, "", "find "+n.field(t, "default", "persistentvolume/"+name, "{.spec.local.path}")+" -mindepth 1 -delete")
		n.kubectl(t, "patch", "persistentvolume", name, "--type=json", `--patch=[{"op": "remove", "path": "/spec/claimRef"}]`)
	}
	for _, path := range strings.Fields(n.kubectl(t, "get", "persistentvolumes", "-o", "jsonpath={.items[*].spec.local.path}")) {
		n.mustOnNode(t, "", "mountpoint -q "+path+" || mount -t tmpfs -o size=256m tmpfs "+path)
	}
}

// onNode runs a script as root on the node. The script can access the node's files, which the tests cannot.
func (n *node) onNode(stdin, script string) (string, error) {
	pid, err := os.ReadFile(filepath.Join(n.state, "init.pid"))
	if err != nil {
		return "", err
	}
	return n.try(stdin, "nsenter", "--target", strings.TrimSpace(string(pid)), "--mount", "--net", "--pid", "--ipc", "--uts", "--cgroup", "--wd=/", "--",
		"env", "PATH="+filepath.Join(n.state, "controlplane")+":/usr/bin:/bin", "bash", "-euo", "pipefail", "-c", script)
}

func (n *node) mustOnNode(t *testing.T, stdin, script string) string {
	t.Helper()
	out, err := n.onNode(stdin, script)
	rig.Must(t, err)
	return out
}

// killContainer kills a container of a Pod with SIGKILL.
func (n *node) killContainer(t *testing.T, in, pod, container string) {
	t.Helper()
	n.run(t, "ctr", "-n", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", n.containerOf(t, in, pod, container))
}

// containerOf returns the id of a container, also of an init container.
func (n *node) containerOf(t *testing.T, in, pod, container string) string {
	t.Helper()
	for _, list := range []string{"containerStatuses", "initContainerStatuses"} {
		if id := n.field(t, in, "pod/"+pod, `{.status.`+list+`[?(@.name=="`+container+`")].containerID}`); id != "" {
			return strings.TrimPrefix(id, "containerd://")
		}
	}
	t.Fatalf("the Pod %s has no container %s", pod, container)
	return ""
}

// admin returns a client of the key server as the manager's service account, with a token as in docs/install.md.
func (n *node) admin(t *testing.T) *client.Client {
	t.Helper()
	return n.client(t, namespace, n.field(t, namespace, "configmap/keyserver-ca", `{.data.ca\.crt}`), n.accountOf(t, namespace, "keyserver-manager"))
}

// accountOf returns the credentials of a service account.
func (n *node) accountOf(t *testing.T, in, name string) client.Credentials {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	rig.Must(t, os.WriteFile(token, []byte(n.kubectl(t, "-n", in, "create", "token", name, "--duration", "1h", "--audience", serviceURL)), 0o600))
	return client.KubernetesCredentials(token)
}

// client returns a client of the key server in a namespace. The Service must have the same name as that of the product.
func (n *node) client(t *testing.T, in, ca string, who client.Credentials) *client.Client {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(ca)) {
		t.Fatalf("no certificate of the key server of %s", in)
	}
	service := net.JoinHostPort(n.field(t, in, "service/keyserver", "{.spec.clusterIP}"), "443")
	c, err := client.New(client.Options{
		BaseURL: strings.Replace(serviceURL, namespace, in, 1), Credentials: who,
		HTTPClient: &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}, // they resolve only in Pods
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, service)
			},
		}},
	})
	rig.Must(t, err)
	return c
}

const serviceURL = "https://keyserver." + namespace + ".svc"

// grant allows the objects of a namespace to declare these operations and names, as in docs/workloads.md.
func (n *node) grant(t *testing.T, to, operations, names string) {
	t.Helper()
	n.kubectl(t, "-n", to, "create", "rolebinding", "keyserver-manager-publish",
		"--clusterrole=keyserver-manager-publish", "--serviceaccount="+namespace+":keyserver-manager")
	n.apply(t, "default", fmt.Sprintf(`
apiVersion: trust.keyserver.dev/v1beta1
kind: KeyServer
metadata: {name: default}
spec:
  grants:
    - name: %[1]s
      namespaces: {names: [%[1]s]}
      kinds: [ACLTemplate, Key, Principal, PrincipalTrust, Role, TrustedCA, TrustedServer]
      names: [%[3]s]
      operations: [%[2]s]
`, to, operations, names), "--field-manager", "grant-"+to)
}

// apply applies YAML. in is the namespace of objects that do not name one.
func (n *node) apply(t *testing.T, in, text string, flags ...string) {
	t.Helper()
	_, err := n.try(text, append([]string{"kubectl", "-n", in, "apply", "--server-side", "-f", "-"}, flags...)...)
	rig.Must(t, err)
}

// deleteNamespaceAtEnd deletes a namespace at the end of a step, with the objects in it.
func (n *node) deleteNamespaceAtEnd(t *testing.T, name string) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			return // for inspection
		}
		n.undeclare(t, name)
		n.kubectl(t, "delete", "namespace", name, "--timeout=2m")
	})
}

// undeclare deletes the declared objects in a namespace, without the KeyServers in the category "trust".
func (n *node) undeclare(t *testing.T, in string) {
	t.Helper()
	kinds := []string{"aclt", "ptrust", "tserver", "tca", "ksp", "key.trust.keyserver.dev", "role.trust.keyserver.dev"}
	n.kubectl(t, "-n", in, "delete", strings.Join(kinds, ","), "--all", "--timeout=2m")
}

func (n *node) read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(n.root, filepath.FromSlash(name)))
	rig.Must(t, err)
	return string(text)
}

// scaled sets the number of Pods of the product to 0 or 1.
func (n *node) scaled(t *testing.T, replicas int) {
	t.Helper()
	n.kubectl(t, "-n", namespace, "scale", "deployment/keyserver", fmt.Sprintf("--replicas=%d", replicas))
	if replicas == 0 {
		n.kubectl(t, "-n", namespace, "wait", "--for=delete", "pod", "-l", "app.kubernetes.io/name=keyserver", "--timeout=2m")
	}
}

// component runs a script of hack/cluster that kills or starts a program of the node.
func (n *node) component(script string, arguments ...string) error {
	out, err := exec.Command(filepath.Join(n.root, "hack/cluster", script+".sh"), arguments...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("hack/cluster/%s.sh %s: %w\n%s", script, strings.Join(arguments, " "), err, out)
	}
	return nil
}
