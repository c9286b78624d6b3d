//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keyserver-operator/keyserver-operator/test/cluster/policies"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// nft runs a script of nft. The tests are on the network of the node.
func nft(script string) error {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w\n%s%s", err, out, script)
	}
	return nil
}

// enforces applies the NetworkPolicies of the cluster to all Pods until the test ends or stop is
// called. They are in force when it returns.
func (n *node) enforces(t *testing.T) (stop func()) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(n.state, "admin.conf"))
	rig.Must(t, err)
	kube, err := kubernetes.NewForConfig(config)
	rig.Must(t, err)
	before := ""
	update := func(ctx context.Context) error {
		rules, err := rulesOf(ctx, kube)
		if err == nil && rules != before {
			if err = nft(rules); err == nil {
				before = rules
			}
		}
		return err
	}
	rig.Must(t, update(t.Context()))
	ctx, cancel := context.WithCancel(context.Background())
	var engine sync.WaitGroup
	engine.Go(func() {
		for ctx.Err() == nil {
			// If the API server does not respond, the rules do not change.
			if err := update(ctx); err != nil && strings.HasPrefix(err.Error(), "nft") {
				t.Errorf("the rules of the policies: %v", err)
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			engine.Wait()
			if err := nft("delete table " + policies.Table); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

func rulesOf(ctx context.Context, kube *kubernetes.Clientset) (string, error) {
	namespaces, err := kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	pods, err := kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	all, err := kube.NetworkingV1().NetworkPolicies("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	return policies.Cluster{Namespaces: namespaces.Items, Pods: pods.Items, Policies: all.Items}.Rules()
}

// probe starts a Pod that opens connections. Policies select it by its labels.
func (n *node) probe(t *testing.T, in, name, labels string) {
	t.Helper()
	n.apply(t, in, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {%s}}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: probe
      image: registry.example/workload:1
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`, name, labels))
	n.kubectl(t, "-n", in, "wait", "--for=condition=Ready", "--timeout=2m", "pod/"+name)
	t.Cleanup(func() { n.kubectl(t, "-n", in, "delete", "pod", name, "--timeout=1m") })
}

// way is a connection from a Pod to an address.
type way struct {
	namespace, pod, address string
}

// open reports whether the connection succeeds, or whether a name resolves if there is no address.
func (n *node) open(w way) (bool, error) {
	script := fmt.Sprintf(`curl --silent --output /dev/null --connect-timeout 2 --max-time 3 --write-out '%%{time_connect}' http://%s || true`, w.address)
	if w.address == aName {
		script = `curl --silent --output /dev/null --connect-timeout 3 --write-out '%{time_namelookup}' http://` + aName + `:1 || true`
	}
	out, err := n.try(script, "kubectl", "-n", w.namespace, "exec", "-i", w.pod, "--", "sh")
	return strings.Trim(out, "0.") != "", err
}

// aName is a name that CoreDNS resolves.
const aName = "kubernetes.default.svc.cluster.local"

// networkPolicies checks that the traffic that the product, its workloads and its peers need passes, and that the
// traffic that its policies deny is dropped.
func networkPolicies(t *testing.T, n *node) {
	replace := strings.NewReplacer("curlimages/curl:8.17.0", "registry.example/workload:1")
	n.document(t, "workloads.md", replace, "Give the namespace a grant", "Declare role, principal and key", "Run the Pod")
	n.deleteNamespaceAtEnd(t, "payments")
	n.probe(t, namespace, "stranger", "app: stranger")
	// These Pods have the labels of the product, and a shell. No Service forwards to them.
	n.probe(t, namespace, "like-keyserver", "app.kubernetes.io/name: keyserver")
	n.probe(t, namespace, "like-api", `trust.keyserver.dev/api: "true"`)
	nodeAddress := n.field(t, "default", "node/node", `{.status.addresses[?(@.type=="InternalIP")].address}`)
	for _, port := range []string{"443", "5432", "8080", "8443"} {
		listenAt(t, net.JoinHostPort(nodeAddress, port))
	}
	addressOfProduct := func() string {
		return n.kubectl(t, "-n", namespace, "get", "pods", "-l", "trust.keyserver.dev/manager=true", "-o", "jsonpath={.items[0].status.podIP}")
	}
	product := addressOfProduct()
	to := func(in, pod, at, port string) way { return way{in, pod, net.JoinHostPort(at, port)} }
	passes := []way{
		to("payments", "signer", product, "8443"),
		to("payments", "signer", product, "9443"), // of peers
		{"payments", "signer", aName},
		to(namespace, "like-keyserver", nodeAddress, "443"),
		to(namespace, "like-keyserver", nodeAddress, "6443"), // kube-apiserver
		to(namespace, "like-keyserver", nodeAddress, "8443"),
		{namespace, "like-keyserver", aName},
	}
	not := []way{
		to("payments", "signer", product, "8081"), // health of the manager
		to(namespace, "stranger", nodeAddress, "443"),
		{namespace, "stranger", aName},
		to(namespace, "stranger", product, "8443"),
		to(namespace, "like-keyserver", nodeAddress, "8080"),
		to(namespace, "like-keyserver", nodeAddress, "5432"),
		to(namespace, "like-api", nodeAddress, "443"),
	}
	database := to(namespace, "like-api", nodeAddress, "5432")
	for _, w := range append(append([]way{database}, passes...), not...) {
		if open, err := n.open(w); !open {
			t.Fatalf("nobody enforces anything, and %v is closed: nothing would be shown (%v)", w, err)
		}
	}

	stop := n.enforces(t)
	is := func(want bool, all ...way) {
		t.Helper()
		for _, w := range all {
			rig.Succeeds(t, func() error {
				open, err := n.open(w)
				if err == nil && open != want {
					err = fmt.Errorf("%v is open: %t", w, open)
				}
				return err
			})
		}
	}
	is(false, not...)
	is(false, database)
	is(true, passes...)
	n.apply(t, namespace, n.read(t, "config/overlays/postgres/network_policy.yaml"))
	is(true, database)
	is(false, to(namespace, "like-api", nodeAddress, "8080"), to(namespace, "like-keyserver", nodeAddress, "5432"))
	n.kubectl(t, "-n", namespace, "delete", "networkpolicy", "keyserver-database")
	is(false, database)

	// All documented commands work with only the traffic that the policies allow.
	n.document(t, "workloads.md", replace, "Call the key server", "Use an agent instead of credential code", "Find out why a request failed")
	n.kubectl(t, "-n", namespace, "delete", "pod", "-l", "trust.keyserver.dev/manager=true")
	n.awaitField(t, namespace, "deployment/keyserver", available, "True")
	n.awaitField(t, "default", "keyserver/default", ready, "True")
	n.document(t, "workloads.md", replace, "Call the key server")
	n.settled(t) // the previous Pod has no endpoint any more
	stop()
	is(true, to("payments", "signer", addressOfProduct(), "8081"))
}

// listenAt listens at an address of the node until the test ends.
func listenAt(t *testing.T, address string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	rig.Must(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
}
