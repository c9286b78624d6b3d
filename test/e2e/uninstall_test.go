package e2e

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
	"github.com/keyserver-operator/keyserver-operator/test/rig/markdown"
	"github.com/keyserver-operator/keyserver-operator/test/rig/shell"
)

// Headings of docs/uninstall.md.
const (
	takeBack  = "Uninstall and delete the declared trust"
	leave     = "Uninstall and keep the declared trust"
	gone      = "Uninstall without the manager"
	left      = "Find the remaining objects"
	deleteAll = "Delete every key"
)

// uninstalled is an installation with objects, and the command blocks of docs/uninstall.md by heading. This cluster
// runs neither Pods nor the garbage collector. The manager is a process that the test stops.
type uninstalled struct {
	*world
	blocks map[string][]string
}

func startUninstall(t *testing.T) *uninstalled {
	t.Helper()
	shell.Need(t)
	u := &uninstalled{world: newWorld(t), blocks: map[string][]string{}}
	text, err := os.ReadFile(filepath.Join(checkout(t), "docs", "uninstall.md"))
	rig.Must(t, err)
	for _, b := range markdown.Blocks(string(text)) {
		u.blocks[b.Heading] = append(u.blocks[b.Heading], b.Text)
	}
	for heading, want := range map[string]int{takeBack: 3, leave: 1, gone: 3, left: 1, deleteAll: 2} {
		if got := len(u.blocks[heading]); got != want {
			t.Fatalf("docs/uninstall.md has %d blocks under %q, and %d are run", got, heading, want)
		}
	}
	if len(u.blocks) != 5 {
		t.Fatalf("docs/uninstall.md has commands under %d headings, and those of 5 are run", len(u.blocks))
	}
	readme, err := os.ReadFile(filepath.Join(checkout(t), "README.md"))
	rig.Must(t, err)
	for _, b := range markdown.Blocks(string(readme)) {
		if b.Heading == "Install" || b.Heading == "Use it" {
			u.shell(t, b.Text)
		}
	}
	u.apply(t, role("signer", "Signer", "HMAC Data"), trustedCA(t, "partners"))
	u.wait(t, "ksrole/signer", "Ready")
	u.wait(t, "tca/partners", "Ready")
	return u
}

func checkout(t *testing.T) string {
	t.Helper()
	root, err := rig.Root()
	rig.Must(t, err)
	return root
}

// shell runs commands in the checkout, for at most two minutes.
func (u *uninstalled) shell(t *testing.T, script string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", "set -euo pipefail\n"+script)
	cmd.Dir = checkout(t)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+u.kubeconfig, "HOME="+u.home,
		"PATH="+filepath.Dir(controlplane.Kubectl(t))+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = rig.EndWithTest(syscall.SIGKILL)
	out, err := cmd.CombinedOutput()
	t.Logf("%s\n%s", script, out)
	if err != nil {
		t.Fatal(err)
	}
}

// commands runs the blocks of a heading with these indexes.
func (u *uninstalled) commands(t *testing.T, heading string, which ...int) {
	t.Helper()
	for _, i := range which {
		u.shell(t, u.blocks[heading][i])
	}
}

// kept checks that the volume claim and the namespace still exist, and that all other objects are deleted.
func (u *uninstalled) kept(t *testing.T) {
	t.Helper()
	u.commands(t, left, 0)
	for what, want := range map[string]string{
		"namespace/keyserver-system":         "namespace/keyserver-system",
		"pvc/keyserver-data":                 "persistentvolumeclaim/keyserver-data",
		"deployment/keyserver":               "",
		"crd/keyservers.trust.keyserver.dev": "",
		"crd/roles.trust.keyserver.dev":      "",
		"clusterrole/keyserver-manager":      "",
	} {
		out := u.kubectl(t, "", "-n", "keyserver-system", "get", what, "--ignore-not-found", "-o", "name")
		if got := strings.TrimSpace(out); got != want {
			t.Errorf("%s is %q, want %q", what, got, want)
		}
		if want != "" {
			if at := u.kubectl(t, "", "-n", "keyserver-system", "get", what, "-o", "jsonpath={.metadata.deletionTimestamp}"); at != "" {
				t.Errorf("%s is being deleted", what)
			}
		}
	}
}

// declared checks how many objects on the key server belong to declared objects.
func (u *uninstalled) declared(t *testing.T, want int) {
	t.Helper()
	list, err := u.admin.ListTrustedCAs(t.Context(), schema.TrustedCAsQuery{})
	rig.Must(t, err)
	if got := len(list.TrustedCAs) + len(u.roles(t)); got != want {
		t.Errorf("the key server has %d things that were declared, want %d", got, want)
	}
}

func TestUninstall(t *testing.T) {
	t.Parallel() // it mostly waits, for its own clusters
	for name, walk := range map[string]func(*testing.T, *uninstalled){
		"taking back": func(t *testing.T, u *uninstalled) {
			u.commands(t, takeBack, 0)
			u.kept(t)
			u.declared(t, 0)
		},
		"a key server that does not come back": func(t *testing.T, u *uninstalled) {
			u.proxy.inject(func(*http.Request) fault { return fault{Status: http.StatusBadGateway} })
			u.kubectl(t, "", "delete", "--wait=false", "ksrole/signer")
			rig.Soon(t, "the deletion waits", func() bool {
				return strings.Contains(u.kubectl(t, "", "get", "ksrole/signer", "-o", "jsonpath={.status.conditions}"), "deletion waits")
			})
			u.commands(t, takeBack, 1, 2, 0)
			u.kept(t)
		},
		"leaving": func(t *testing.T, u *uninstalled) {
			u.commands(t, leave, 0)
			u.kept(t)
			u.declared(t, 2)
		},
		"with the manager gone": func(t *testing.T, u *uninstalled) {
			u.stopManager()
			u.shell(t, "kubectl delete -k config/default --wait=false")
			if at := u.kubectl(t, "", "get", "ksrole/signer", "-o", "jsonpath={.metadata.deletionTimestamp}{.metadata.finalizers}"); at == "" {
				t.Error("nothing hangs, and the document says so")
			}
			u.commands(t, gone, 0, 2)
			u.kept(t)
			u.declared(t, 2)
		},
		"with the manager back": func(t *testing.T, u *uninstalled) {
			u.stopManager()
			u.shell(t, "kubectl delete -k config/default --wait=false")
			u.commands(t, gone, 1)
			u.startManager(t)
			rig.Soon(t, "the objects go", func() bool {
				out, err := u.try(t, "", "get", "ksrole/signer", "tca/partners", "ks/default", "--ignore-not-found")
				return err != nil || out == ""
			})
			u.commands(t, leave, 0)
			u.kept(t)
			u.declared(t, 2)
		},
		"everything": func(t *testing.T, u *uninstalled) {
			u.commands(t, leave, 0)
			u.controllers(t)
			u.commands(t, deleteAll, 0, 1)
			if out := u.kubectl(t, "", "get", "namespace", "keyserver-system", "--ignore-not-found"); out != "" {
				t.Errorf("there is still %s", out)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := startUninstall(t)
			walk(t, u)
		})
	}
}

// controllers replaces controllers that this cluster lacks: it releases a claim that no Pod uses, and finalizes an
// empty namespace.
func (u *uninstalled) controllers(t *testing.T) {
	t.Helper()
	const at = "jsonpath={.metadata.deletionTimestamp}"
	go func() {
		for t.Context().Err() == nil {
			if out, err := u.try(t, "", "-n", "keyserver-system", "get", "pvc/keyserver-data", "-o", at); err == nil && out != "" {
				_, _ = u.try(t, "", "-n", "keyserver-system", "patch", "pvc/keyserver-data", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`) // until deleted
			}
			if out, err := u.try(t, "", "get", "namespace/keyserver-system", "-o", at); err == nil && out != "" {
				_, _ = u.try(t, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"keyserver-system"},"spec":{"finalizers":[]}}`,
					"replace", "--raw", "/api/v1/namespaces/keyserver-system/finalize", "-f", "-") // until deleted
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
}
