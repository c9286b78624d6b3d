//go:build cluster

package cluster

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	encrypted "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/markdown"
)

const (
	kmsNamespace = "shop-cluster" // of docs/kms.md
	kmsPod       = "keyserver-kms-node"
	kmsPrefix    = "k8s:enc:kms:v2:keyserver:"
	planted      = "the password of somebody"

	etcd = "http://127.0.0.1:2379" // of the node
)

// encryption runs the plugin as a static Pod of the node, for the node's own kube-apiserver. The key server is in the
// same cluster, which docs/kms.md explains with a warning.
type encryption struct {
	*node
	lineage  schema.HiddenLink
	manifest string // of the static Pod
}

func kms(t *testing.T, n *node) {
	e := &encryption{node: n, manifest: filepath.Join(n.state, "manifests", "keyserver-kms.yaml")}
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"what is declared", e.declare},
		{"the plugin", e.plugin},
		{"Secrets are encrypted", e.encrypts},
		{"the line is rotated", e.rotates},
		{"the plugin is killed", e.pluginKilled},
		{"the API server starts without the plugin", e.startsWithoutPlugin},
		{"the key server is away", e.serverAway},
		{"all of the control plane starts without the key server", e.coldStart},
		{"leave it", e.leave},
	} {
		if !t.Run(step.name, step.do) {
			out, err := n.try("", "kubectl", "-n", "kube-system", "logs", kmsPod, "--tail=20")
			t.Logf("%s%v", out, err)
			return
		}
	}
}

// blockOf returns the block of docs/kms.md that has these words.
func (e *encryption) blockOf(t *testing.T, language, words string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(e.root, "docs", "kms.md"))
	rig.Must(t, err)
	if language == "sh" {
		for _, b := range markdown.Blocks(string(text)) {
			if strings.Contains(b.Text, words) {
				return b.Text
			}
		}
	}
	for _, part := range strings.Split(string(text), "```"+language+"\n")[1:] {
		if part, _, _ = strings.Cut(part, "```"); strings.Contains(part, words) {
			return part
		}
	}
	t.Fatalf("docs/kms.md has no block of %s with %q", language, words)
	return ""
}

func (e *encryption) declare(t *testing.T) {
	e.kubectl(t, "create", "namespace", kmsNamespace)
	e.kubectl(t, "-n", kmsNamespace, "create", "serviceaccount", "control-plane")
	e.grant(t, kmsNamespace, "Encrypt Data, Decrypt Data", `"Kubernetes Encryption", "xauth/system:serviceaccount:shop-cluster:*", "key/shop-cluster/*"`)
	e.apply(t, kmsNamespace, e.blockOf(t, "yaml", "kind: Principal"))
	e.kubectl(t, "-n", kmsNamespace, "wait", "--for=condition=Ready", "--timeout=2m",
		"principal.trust.keyserver.dev/control-plane", "key.trust.keyserver.dev/etcd")
	rig.Must(t, e.lineage.UnmarshalText([]byte(e.field(t, kmsNamespace, "configmap/etcd-key", "{.data.lineage}"))))
}

// onThisNode replaces example values of the document with those of this cluster. The root file system of the node is
// read-only, and the key server is behind a Service.
func (e *encryption) onThisNode() *strings.Replacer {
	return strings.NewReplacer(
		"/etc/keyserver-kms", "/var/lib/keyserver-kms",
		"https://keys.example:8443", serviceURL,
		"AAAAAQECAwQFBgcI", e.lineage.String(),
		"keyserver-agent:latest", "registry.example/keyserver-agent:"+release,
	)
}

func (e *encryption) plugin(t *testing.T) {
	replace := e.onThisNode()
	e.mustOnNode(t, e.field(t, kmsNamespace, "configmap/etcd-key", `{.data.ca\.crt}`),
		"mkdir -p /var/lib/keyserver-kms /run/keyserver-kms-token; cat >/var/lib/keyserver-kms/ca.crt; cp "+filepath.Join(e.state, "admin.conf")+" /var/lib/keyserver-kms/kubeconfig")
	e.mustOnNode(t, "", replace.Replace(e.blockOf(t, "sh", "create token control-plane")))

	pod := replace.Replace(e.blockOf(t, "yaml", "kind: Pod"))
	const network = "  hostNetwork: true\n"
	if strings.Count(pod, network) != 1 {
		t.Fatalf("the Pod of docs/kms.md is another one:\n%s", pod)
	}
	// The node cannot use the name server of the cluster, which starts later than the plugin.
	service := e.field(t, namespace, "service/keyserver", "{.spec.clusterIP}")
	pod = strings.Replace(pod, network, network+fmt.Sprintf("  hostAliases:\n    - {ip: %s, hostnames: [%s]}\n", service, strings.TrimPrefix(serviceURL, "https://")), 1)
	rig.Must(t, os.WriteFile(e.manifest+".new", []byte(pod), 0o600))
	rig.Must(t, os.Rename(e.manifest+".new", e.manifest))
	e.pluginReady(t)
}

// pluginReady waits until the plugin reports that it can encrypt.
func (e *encryption) pluginReady(t *testing.T) {
	t.Helper()
	rig.Succeeds(t, func() error {
		answer, err := http.Get("http://127.0.0.1:9464/readyz")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("readyz of the plugin: %s", answer.Status)
		}
		return nil
	})
}

// stored returns a Secret as etcd stores it.
func (e *encryption) stored(t *testing.T, name string) []byte {
	t.Helper()
	path := "/registry/secrets/default/" + name
	value, found := rig.Stored(t, etcd, path)[path]
	if !found {
		t.Fatalf("etcd has no %s", path)
	}
	return value
}

// keyOf returns the id of the key that a Secret is encrypted with.
func (e *encryption) keyOf(t *testing.T, name string) string {
	t.Helper()
	raw := e.stored(t, name)
	text, found := bytes.CutPrefix(raw, []byte(kmsPrefix))
	if !found || bytes.Contains(raw, []byte(planted)) {
		t.Fatalf("etcd has the Secret %s as %.60q", name, raw)
	}
	var object encrypted.EncryptedObject
	rig.Must(t, proto.Unmarshal(text, &object))
	return object.GetKeyID()
}

func (e *encryption) create(t *testing.T, name string) {
	t.Helper()
	e.kubectl(t, "create", "secret", "generic", name, "--from-literal=password="+planted)
}

func (e *encryption) read(name string) error {
	said, err := e.try("", "kubectl", "get", "secret", name, "-o", "go-template={{.data.password | base64decode}}")
	if err == nil && said != planted {
		err = fmt.Errorf("the Secret %s says %q", name, said)
	}
	return err
}

func (e *encryption) reads(t *testing.T, when string, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := e.read(name); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
}

// restartAPIServer ends kube-apiserver and starts another one. The returned channel reports when the new one is ready.
func (e *encryption) restartAPIServer(t *testing.T, signal string) <-chan error {
	t.Helper()
	rig.Must(t, e.component("kill", signal, "apiserver"))
	return e.startAPIServer()
}

func (e *encryption) startAPIServer() <-chan error {
	ready := make(chan error, 1)
	go func() { ready <- e.component("start", "apiserver") }()
	return ready
}

// isReady waits until a started kube-apiserver is ready.
func isReady(t *testing.T, ready <-chan error) {
	t.Helper()
	select {
	case err := <-ready:
		rig.Must(t, err)
	case <-time.After(2 * rig.Patience):
		t.Fatal("kube-apiserver is not ready")
	}
}

func (e *encryption) encrypts(t *testing.T) {
	e.create(t, "before")
	if !bytes.Contains(e.stored(t, "before"), []byte(planted)) {
		t.Fatal("without encryption etcd has no plain Secret: nothing would be shown")
	}
	config := filepath.Join(e.state, "encryption.yaml")
	rig.Must(t, os.WriteFile(config, []byte(e.blockOf(t, "yaml", "kind: EncryptionConfiguration")), 0o600))
	rig.Must(t, os.WriteFile(filepath.Join(e.state, "flags", "apiserver"), []byte("--encryption-provider-config="+config+"\n"), 0o600))
	isReady(t, e.restartAPIServer(t, "TERM"))

	e.create(t, "left")
	e.create(t, "rewritten")
	for _, name := range []string{"left", "rewritten"} {
		if key := e.keyOf(t, name); key != e.lineage.String() {
			t.Errorf("the Secret %s is stored by key %s; the line begins with %s", name, key, e.lineage)
		}
	}
	e.reads(t, "encrypted, and from before", "before", "left", "rewritten")

	// Existing Secrets are only encrypted when they are written again.
	began := time.Now()
	_, err := e.try("", "bash", "-euo", "pipefail", "-c", e.blockOf(t, "sh", "kubectl replace -f -"))
	rig.Must(t, err)
	all := rig.Stored(t, etcd, "/registry/secrets/")
	for path, value := range all {
		if !bytes.HasPrefix(value, []byte(kmsPrefix)) || bytes.Contains(value, []byte(planted)) {
			t.Errorf("etcd has %s as %.60q", path, value)
		}
	}
	logMeasurement(t, "%d Secrets written again in %s", len(all), seconds(time.Since(began)))
	e.reads(t, "written again", "before")
}

func (e *encryption) rotates(t *testing.T) {
	rotated, err := e.admin(t).RotateKey(t.Context(), schema.KeyRequest{TTag: e.lineage})
	rig.Must(t, err)
	began := time.Now()
	rewrite := "kubectl get secret rewritten -o json | kubectl replace -f -"
	rig.Succeeds(t, func() error {
		time.Sleep(time.Second)
		if _, err := e.try("", "bash", "-euo", "pipefail", "-c", rewrite); err != nil {
			return err
		}
		if key := e.keyOf(t, "rewritten"); key != rotated.TTag.String() {
			return fmt.Errorf("it is stored by key %s; want the one of the rotation, %s", key, rotated.TTag)
		}
		return nil
	})
	logMeasurement(t, "%s after the rotation kube-apiserver encrypts by the new key", seconds(time.Since(began)))
	if key := e.keyOf(t, "left"); key != e.lineage.String() {
		t.Errorf("what nobody has written again is stored by key %s", key)
	}
	e.reads(t, "after the rotation", "before", "left", "rewritten")
	isReady(t, e.restartAPIServer(t, "KILL"))
	e.reads(t, "by an API server that has read none of them", "before", "left", "rewritten")
}

// kubelet restarts the plugin immediately, with the same socket.
func (e *encryption) pluginKilled(t *testing.T) {
	before := e.containerOf(t, "kube-system", kmsPod, "kms")
	e.killContainer(t, "kube-system", kmsPod, "kms")
	began := time.Now()
	e.reads(t, "while the plugin is killed", "left")
	e.create(t, "written-meanwhile")
	rig.Soon(t, "another plugin runs", func() bool { return e.containerOf(t, "kube-system", kmsPod, "kms") != before })
	e.pluginReady(t)
	logMeasurement(t, "kill -9 of the plugin: another one encrypts after %s", seconds(time.Since(began)))
	isReady(t, e.restartAPIServer(t, "TERM"))
	e.reads(t, "by an API server that has read none of them", "left", "written-meanwhile")
}

// notReady waits until a new API server reports that it cannot get the seeds.
func (e *encryption) notReady(t *testing.T) {
	t.Helper()
	rig.Succeeds(t, func() error {
		said, err := e.try("", "kubectl", "get", "--raw", "/readyz/kms-providers")
		if err == nil {
			return fmt.Errorf("kms-providers says %q", said)
		}
		if !strings.Contains(err.Error(), "kms-provider-0: ") {
			return err
		}
		if err := e.read("left"); err == nil || !strings.Contains(err.Error(), "Internal error") {
			return fmt.Errorf("a Secret is read: %w", err)
		}
		return nil
	})
	if out, err := e.try("", "kubectl", "create", "secret", "generic", "refused", "--from-literal=password="+planted); err == nil {
		t.Errorf("a Secret is written: %s", out)
	}
	// Requests that need no Secret still succeed.
	e.kubectl(t, "create", "configmap", "not-encrypted")
	e.kubectl(t, "delete", "configmap", "not-encrypted")
	e.kubectl(t, "-n", "kube-system", "create", "token", "default")
}

func (e *encryption) startsWithoutPlugin(t *testing.T) {
	pod, err := os.ReadFile(e.manifest)
	rig.Must(t, err)
	rig.Must(t, os.Remove(e.manifest))
	rig.Soon(t, "the plugin has ended", func() bool {
		_, err := e.onNode("", "test -S /run/keyserver-kms/kms.sock")
		return err != nil
	})
	e.reads(t, "without the plugin", "left")
	e.create(t, "written-without-plugin")

	again := e.restartAPIServer(t, "TERM")
	e.notReady(t)
	rig.Must(t, os.WriteFile(e.manifest+".new", pod, 0o600))
	rig.Must(t, os.Rename(e.manifest+".new", e.manifest))
	began := time.Now()
	isReady(t, again)
	logMeasurement(t, "an API server that started without the plugin is ready %s after the Pod of that was put back", seconds(time.Since(began)))
	e.reads(t, "with the plugin again", "left", "written-without-plugin")
}

func (e *encryption) serverAway(t *testing.T) {
	e.scaled(t, 0)
	e.reads(t, "without the key server", "left")
	e.create(t, "written-without-server")

	again := e.restartAPIServer(t, "TERM")
	e.notReady(t)
	// The key server starts again in a cluster whose API server cannot read Secrets.
	e.scaled(t, 1)
	began := time.Now()
	isReady(t, again)
	logMeasurement(t, "the key server away, and the API server started meanwhile: ready %s after the key server was let start", seconds(time.Since(began)))
	e.reads(t, "with the key server again", "left", "written-without-server")
	e.awaitField(t, "default", "keyserver/default", ready, "True")
}

// coldStart simulates a power cut: only the data of etcd remains. The cluster recovers as
// docs/kms.md, "Start a cluster that contains its key server", says.
func (e *encryption) coldStart(t *testing.T) {
	rig.Must(t, e.component("kill", "KILL", "kubelet", "controller-manager", "scheduler", "apiserver"))
	e.run(t, "bash", "-euo", "pipefail", "-c", `
		ctr -n k8s.io tasks ls -q | while read -r task; do ctr -n k8s.io tasks kill --signal SIGKILL "$task" || true; done`)
	began := time.Now()
	again := e.startAPIServer()
	e.notReady(t)
	started := e.field(t, namespace, "pods", startedAt)
	rig.Must(t, e.component("start", "controller-manager", "scheduler", "kubelet"))
	rig.Soon(t, "the key server runs again", func() bool {
		out, err := e.try("", "kubectl", "-n", namespace, "get", "pods", "-o", "jsonpath="+startedAt+`{" "}{.items[0].status.conditions[?(@.type=="Ready")].status}`)
		return err == nil && strings.HasSuffix(out, " True") && !strings.HasPrefix(out, started)
	})
	_, err := e.try("", "bash", "-euo", "pipefail", "-c", e.blockOf(t, "sh", "get endpointslices"))
	rig.Must(t, err)
	isReady(t, again)
	// The controller manager may have ended, or may end soon; normally kubelet would restart it.
	_ = e.component("kill", "KILL", "controller-manager")
	rig.Must(t, e.component("start", "controller-manager"))
	e.kubectl(t, "create", "namespace", "begun")
	e.kubectl(t, "-n", "begun", "wait", "--for=create", "serviceaccount/default", "--timeout=2m") // the controllers run
	e.kubectl(t, "delete", "namespace", "begun", "--timeout=2m")
	logMeasurement(t, "cold start, the key server in the same cluster: Secrets are read %s after kube-apiserver was started", seconds(time.Since(began)))
	e.reads(t, "after a cold start", "before", "left", "rewritten")
	e.kubectl(t, "wait", "--for=condition=Ready", "node/node", "--timeout=2m")
	e.awaitField(t, namespace, "deployment/keyserver", available, "True")
	e.awaitField(t, "default", "keyserver/default", ready, "True")
}

// startedAt is the start time of the key server's container in the Pod.
const startedAt = `{.items[0].status.containerStatuses[?(@.name=="api")].state.running.startedAt}`

// leave stops encrypting, as docs/kms.md, "Stop encrypting", says.
func (e *encryption) leave(t *testing.T) {
	config := filepath.Join(e.state, "encryption.yaml")
	text, err := os.ReadFile(config)
	rig.Must(t, err)
	const identity, last = "      - identity: {}", "    providers:\n"
	at := strings.Index(string(text), identity)
	if at < 0 {
		t.Fatal("docs/kms.md has no identity in its configuration")
	}
	first := strings.Replace(string(text[:at]), last, last+"      - identity: {}\n", 1)
	rig.Must(t, os.WriteFile(config, []byte(first), 0o600))
	isReady(t, e.restartAPIServer(t, "TERM"))
	_, err = e.try("", "bash", "-euo", "pipefail", "-c", e.blockOf(t, "sh", "kubectl replace -f -"))
	rig.Must(t, err)
	for path, value := range rig.Stored(t, etcd, "/registry/secrets/") {
		if bytes.HasPrefix(value, []byte("k8s:enc:")) {
			t.Errorf("%s is encrypted still", path)
		}
	}
	rig.Must(t, os.Remove(filepath.Join(e.state, "flags", "apiserver")))
	isReady(t, e.restartAPIServer(t, "TERM"))
	rig.Must(t, os.Remove(e.manifest))
	e.reads(t, "in the end", "before", "left", "rewritten")
	e.kubectl(t, "delete", "secret", "--ignore-not-found", "before", "left", "rewritten", "written-meanwhile", "written-without-plugin", "written-without-server")
	e.undeclare(t, kmsNamespace)
	e.kubectl(t, "delete", "namespace", kmsNamespace, "--timeout=2m")
}
