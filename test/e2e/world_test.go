// Package e2e runs the program as its users do. serve and manager are separate processes, the cluster is a real
// kube-apiserver, and objects are declared with the real kubectl. The library of Flux and other tools determines the
// health of objects, and so do our scripts for Argo CD.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
	"github.com/keyserver-operator/keyserver-operator/test/rig/need"
)

// binary is built once for all tests.
var binary program.Program

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if controlplane.Missing() {
		return need.Suite(controlplane.Programs, controlplane.Remedy)
	}
	return program.Main(m, &binary, false)
}

// world is a cluster with one manager, and one key server behind a proxy.
type world struct {
	*cluster
	*installation
	manager     *program.Process
	stopManager func()
}

// newWorld starts everything and waits until the KeyServer "default" is Ready.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{cluster: startCluster(t)}
	w.installation = install(t, w.cluster, "default", 1)
	w.startManager(t)
	w.wait(t, "keyserver/default", "Ready")
	return w
}

// startManager starts the operator, which the test ends.
func (w *world) startManager(t *testing.T) {
	t.Helper()
	var err error
	if w.manager, err = binary.Start("manager", "--kubeconfig", w.kubeconfig, "--log-level", "debug"); err != nil {
		t.Fatal(err)
	}
	w.stopManager = sync.OnceFunc(func() {
		if err := w.manager.Stop(); err != nil {
			t.Errorf("the manager did not end well: %.1000v", err)
		}
		if t.Failed() {
			log := w.manager.Log()
			t.Logf("the manager's log ends with\n%s", log[max(0, len(log)-16<<10):])
		}
	})
	t.Cleanup(w.stopManager)
}

// installation is a key server that is declared as a KeyServer.
type installation struct {
	name   string
	server *program.Server
	args   []string
	at     *atomic.Pointer[string] // the current address of the server
	proxy  *proxy                  // between manager and server; nil if there is none
	admin  *client.Client          // bypasses the proxy

	password string // of admin
}

// install starts a key server behind a proxy and declares it as a KeyServer.
func install(t *testing.T, c *cluster, name string, system int) *installation {
	t.Helper()
	in := newInstallation(t, name, 5, "--system-id", fmt.Sprint(system), "--server-name", fmt.Sprintf("198.51.100.%d", system), "--external-listen", "127.0.0.1:0")
	roots, err := program.Roots(in.server.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	in.proxy = newProxy(t, roots, in.address)
	in.declare(t, c)
	return in
}

// newInstallation starts a key server and logs in. retries is the maximum number of retries of its administrator's
// calls.
func newInstallation(t *testing.T, name string, retries int, args ...string) *installation {
	t.Helper()
	in := &installation{name: name, at: &atomic.Pointer[string]{}, args: args}
	in.start(t, filepath.Join(t.TempDir(), "data"))
	t.Cleanup(func() {
		if err := in.server.Stop(); err != nil {
			t.Error(err)
		}
	})
	var err error
	if in.password, err = in.server.Password(); err != nil {
		t.Fatal(err)
	}
	in.connect(t, retries)
	return in
}

func (in *installation) declare(t *testing.T, c *cluster) {
	t.Helper()
	c.apply(t, in.declaration(t))
}

// declaration returns the manifests of the KeyServer and of the Secret with its credentials.
func (in *installation) declaration(t *testing.T) string {
	t.Helper()
	url, bundle := in.reached(t)
	return fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: %[1]s-admin, namespace: kube-system}
stringData: {username: admin, password: %[2]q}
---
apiVersion: trust.keyserver.dev/v1beta1
kind: KeyServer
metadata: {name: %[1]s}
spec:
  url: %[3]s
  caBundle: {inline: %[4]q}
  credentials: {administrator: {secretRef: {namespace: kube-system, name: %[1]s-admin}}}
  grants:
    - name: all
      namespaces: {selector: {}}
      kinds: [ACLTemplate, Key, Principal, PrincipalTrust, Role, TrustedCA, TrustedServer]
      names: ["*"]
      operations: ["duty:administration", "duty:trust", "duty:key use", "duty:audit"]
      adopt: true
`, in.name, in.password, url, bundle)
}

// reached returns the URL that the manager uses, and the certificate to trust there.
func (in *installation) reached(t *testing.T) (url, bundle string) {
	t.Helper()
	if in.proxy != nil {
		return in.proxy.URL, in.proxy.bundle()
	}
	ca, err := os.ReadFile(filepath.Join(in.server.DataDir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	return "https://" + in.address(), string(ca)
}

// start starts the key server at the address in its arguments, or at any free address.
func (in *installation) start(t *testing.T, dataDir string) {
	t.Helper()
	var err error
	if in.server, err = binary.Serve(dataDir, in.args...); err != nil {
		t.Fatal(err)
	}
	in.at.Store(&in.server.Address)
}

// address returns the current address. It may be called while the server restarts.
func (in *installation) address() string { return *in.at.Load() }

func (in *installation) connect(t *testing.T, retries int) {
	t.Helper()
	in.admin = program.Client(t, program.Connect(t, in.server.DataDir, in.address), "admin", in.password, retries)
}

// operations counts the allowed audit rows of some operations, by operation. Each row is one requested effect.
func (in *installation) operations(t *testing.T, names ...string) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, name := range names {
		limit := 1000
		for q := (schema.AuditQuery{Operation: name, Limit: &limit}); ; {
			page, err := in.admin.ListAuditEntries(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page.Entries {
				if e.Outcome == "allowed" {
					counts[name]++
				}
			}
			if page.Next == nil {
				break
			}
			q.Cursor = *page.Next
		}
	}
	return counts
}

// writes are the operations of the manager that change the key server.
var writes = []string{
	"addTrustedCA", "removeTrustedCA", "createRole", "updateRole", "deleteRole",
	"addTrustedServer", "updateTrustedServer", "removeTrustedServer",
	"createACLTemplate", "updateACLTemplate", "deleteACLTemplate", "changeACLTemplateMembers",
	"createPrincipalTrust", "updatePrincipalTrust", "deletePrincipalTrust",
}

func (in *installation) countWrites(t *testing.T) (n int) {
	t.Helper()
	for _, c := range in.operations(t, writes...) {
		n += c
	}
	return n
}

// roles returns the roles that are not built in, by name. It fails the test if two have the same name.
func (in *installation) roles(t *testing.T) map[string]schema.Role {
	t.Helper()
	list, err := in.admin.ListRoles(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]schema.Role{}
	for _, r := range list.Roles {
		if r.BuiltIn != nil && *r.BuiltIn {
			continue
		}
		if _, twice := by[r.Name]; twice {
			t.Errorf("the key server has two roles named %q", r.Name)
		}
		by[r.Name] = r
	}
	return by
}

// kubectl runs kubectl with an input, and fails the test if kubectl fails.
func (c *cluster) kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := c.try(t, stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// try runs kubectl. Its error includes the standard error of kubectl.
func (c *cluster) try(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, controlplane.Kubectl(t), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig, "HOME="+c.home)
	var out, errOut strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String(), errors.Join(fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err), errors.New(errOut.String()))
	}
	return out.String(), nil
}

func (c *cluster) apply(t *testing.T, manifests ...string) {
	t.Helper()
	c.kubectl(t, strings.Join(manifests, "\n---\n"), "apply", "-f", "-")
}

// wait runs kubectl wait for a condition.
func (c *cluster) wait(t *testing.T, object, condition string) {
	t.Helper()
	out, err := c.try(t, "", "wait", "--for=condition="+condition, "--timeout=120s", object)
	if err != nil {
		state, _ := c.try(t, "", "get", object, "-o", "yaml")
		t.Fatalf("%v\n%s\n%s", err, out, state)
	}
}

func (c *cluster) get(t *testing.T, object string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(c.kubectl(t, "", "get", object, "-o", "json"))); err != nil {
		t.Fatal(err)
	}
	return u
}
