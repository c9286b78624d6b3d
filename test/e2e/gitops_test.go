package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// shop is the namespace of the objects of every kind.
const shop = "shop"

// withPeer has the kinds that config/samples lacks.
const withPeer = `---
apiVersion: trust.keyserver.dev/v1beta1
kind: TrustedCA
metadata: {name: partner, namespace: default}
spec: {certificate: {peerRef: {name: peer}}}
---
apiVersion: trust.keyserver.dev/v1beta1
kind: TrustedServer
metadata: {name: partner, namespace: default}
spec: {friendlyName: Partner, trustBlob: {peerRef: {name: peer}}}
---
apiVersion: trust.keyserver.dev/v1beta1
kind: PrincipalTrust
metadata: {name: admin-at-partner, namespace: default}
spec: {principal: {type: password, name: admin}, trustedServerRef: {name: partner}, flag: expose}
`

// everyKind applies, restores and deletes objects of every kind, as GitOps tools, backups and namespaces do.
func (w *world) everyKind(t *testing.T) {
	install(t, w.cluster, "peer", 2)
	w.wait(t, "ks/peer", "Ready")
	w.kubectl(t, "", "create", "namespace", shop)
	text := w.kubectl(t, "", "kustomize", filepath.Join(checkout(t), "config", "samples")) + withPeer
	text = strings.NewReplacer("namespace: default", "namespace: "+shop, ":default:", ":"+shop+":").Replace(text)

	w.unavailable()
	w.apply(t, formerly(text))
	w.allBecome(t, status.InProgressStatus)
	w.proxy.inject(nil)
	w.allBecome(t, status.CurrentStatus)
	w.clientSideApply(t, text+"---"+w.declaration(t))

	done := w.done(t)
	w.grantedTo(t, `{"names": ["default"]}`)
	w.allBecome(t, status.FailedStatus)
	w.grantedTo(t, `{"selector": {}}`)
	w.allBecome(t, status.CurrentStatus)
	w.restore(t)
	w.hasDone(t, done, map[string]int{})

	deletions := map[string]int{
		"removeTrustedCA": 3, "removeTrustedServer": 1, "deletePrincipalTrust": 1, "deleteRole": 1, "deletePrincipal": 1, "deleteACLTemplate": 1,
		"changeKeyState": 3, "setOwner": 1, // of the key, which is destroyed later
	}
	manifests := strings.Split(text, "\n---\n")
	slices.Reverse(manifests)
	w.kubectl(t, strings.Join(manifests, "\n---\n"), "delete", "--timeout=2m", "-f", "-")
	w.hasDone(t, done, deletions)

	w.kubectl(t, text, "apply", "--server-side", "-f", "-")
	w.allBecome(t, status.CurrentStatus)
	w.noDiff(t, text, "--server-side")
	w.kubectl(t, "", "-n", shop, "patch", "ksrole/message-signer", "--type=merge", "-p", `{"spec":{"deletionPolicy":"Retain"}}`)
	w.allBecome(t, status.CurrentStatus)
	done = w.done(t)
	w.deleteNamespace(t)
	delete(deletions, "deleteRole")
	deletions["setOwner"]++
	w.hasDone(t, done, deletions)
}

// formerly returns the same manifests in the deprecated version.
func formerly(text string) string {
	return strings.ReplaceAll(text, v1beta1.GroupVersion.String(), v1beta1.Deprecated.String())
}

// unavailable makes each request of the manager to the key server fail.
func (w *world) unavailable() {
	w.proxy.inject(func(*http.Request) fault { return fault{Status: http.StatusBadGateway} })
}

// grantedTo changes the namespaces that may use the key server.
func (w *world) grantedTo(t *testing.T, namespaces string) {
	t.Helper()
	w.kubectl(t, "", "patch", "ks/default", "--type=json", "-p", fmt.Sprintf(`[{"op": "replace", "path": "/spec/grants/0/namespaces", "value": %s}]`, namespaces))
}

// done counts the writes of the manager by operation. A change of a key counts three times: read, write, read.
func (w *world) done(t *testing.T) map[string]int {
	t.Helper()
	return w.operations(t, append(slices.Clone(writes), "createKey", "changeKeyState", "rotateKey", "amendACL",
		"createPrincipal", "updatePrincipalRoles", "deletePrincipal", "setOwner")...)
}

// hasDone checks the number of writes since done.
func (w *world) hasDone(t *testing.T, done, want map[string]int) {
	t.Helper()
	now := w.done(t)
	for name := range now {
		if now[name] -= done[name]; now[name] == 0 {
			delete(now, name)
		}
	}
	if diff := cmp.Diff(want, now); diff != "" {
		t.Errorf("writes (-want +done):\n%s", diff)
	}
}

// inShop returns the objects of the namespace.
func (c *cluster) inShop(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	return slices.DeleteFunc(c.everything(t), func(o unstructured.Unstructured) bool { return o.GetNamespace() != shop })
}

// everything returns all custom resources.
func (c *cluster) everything(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	var list unstructured.UnstructuredList
	rig.Must(t, list.UnmarshalJSON([]byte(c.kubectl(t, "", "get", "trust", "-A", "-o", "json"))))
	return list.Items
}

// allBecome waits until each object of the namespace has a kstatus, and every kind has an object.
func (c *cluster) allBecome(t *testing.T, want status.Status) {
	t.Helper()
	rig.Succeeds(t, func() error {
		kinds := map[string]bool{"KeyServer": true}
		for _, o := range c.inShop(t) {
			kinds[o.GetKind()] = true
			if is := judged(t, &o); is != want {
				return fmt.Errorf("%s %s is %s, want %s", o.GetKind(), o.GetName(), is, want)
			}
		}
		if len(kinds) != len(v1beta1.Kinds) {
			return fmt.Errorf("there are only the kinds %v", kinds)
		}
		return nil
	})
}

// noDiff checks that kubectl diff is empty for both versions of manifests.
func (c *cluster) noDiff(t *testing.T, text, how string) {
	t.Helper()
	for _, manifests := range []string{formerly(text), text} {
		if out, err := c.try(t, manifests, "diff", how, "-f", "-"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// clientSideApply checks that nothing differs after "kubectl apply" without --server-side, and after a change of the
// version.
func (c *cluster) clientSideApply(t *testing.T, text string) {
	t.Helper()
	c.noDiff(t, text, "--server-side=false")
	for _, manifests := range []string{formerly(text), text} {
		c.apply(t, manifests)
		for line := range strings.Lines(c.kubectl(t, manifests, "apply", "-f", "-")) {
			if !strings.HasPrefix(line, "secret/") && !strings.HasSuffix(line, " unchanged\n") {
				t.Errorf("applied again: %s", line)
			}
		}
	}
	for _, o := range c.everything(t) {
		if g := o.GetGeneration(); g != 1 {
			t.Errorf("%s %s has generation %d", o.GetKind(), o.GetName(), g)
		}
	}
}

// restore deletes the CRDs and all objects, and restores them as Velero does: without the status, in alphabetical
// order, while the manager runs.
func (w *world) restore(t *testing.T) {
	t.Helper()
	made := func() map[string][2]string {
		of := map[string][2]string{}
		for _, o := range w.inShop(t) {
			provenance, _, _ := unstructured.NestedString(o.Object, "status", "provenance")
			lineage, _, _ := unstructured.NestedString(o.Object, "status", "lineage")
			of[o.GetKind()+" "+o.GetName()] = [2]string{provenance, lineage}
		}
		return of
	}
	before := made()
	w.stopManager()
	backup := w.everything(t)
	for _, o := range backup {
		w.kubectl(t, "", "-n", o.GetNamespace(), "patch", o.GetKind()+"."+v1beta1.GroupVersion.Group+"/"+o.GetName(), "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp"} {
			unstructured.RemoveNestedField(o.Object, "metadata", field)
		}
		delete(o.Object, "status")
	}
	definitions := filepath.Join(checkout(t), "config", "crd")
	w.kubectl(t, "", "delete", "-k", definitions, "--timeout=1m")
	w.kubectl(t, "", "create", "-k", definitions)
	w.kubectl(t, "", "wait", "--for=condition=Established", "crd", "--all", "--timeout=1m")
	w.startManager(t)
	slices.SortStableFunc(backup, func(a, b unstructured.Unstructured) int {
		return strings.Compare(strings.ToLower(a.GetKind()), strings.ToLower(b.GetKind()))
	})
	for _, o := range backup {
		content, err := json.Marshal(&o)
		rig.Must(t, err)
		w.kubectl(t, string(content), "create", "-f", "-")
	}
	w.allBecome(t, status.CurrentStatus)
	if diff := cmp.Diff(before, made()); diff != "" {
		t.Errorf("(-lost +restored):\n%s", diff)
	}
	if said := w.kubectl(t, "", "-n", shop, "get", "events"); strings.Contains(said, string(v1beta1.ReasonConflict)) {
		t.Errorf("the events are\n%s", said)
	}
}

// deleteNamespace deletes the namespace while the key server is unavailable. This cluster lacks the namespace
// controller, so the test deletes the objects: first their sources, then each kind.
func (w *world) deleteNamespace(t *testing.T) {
	t.Helper()
	w.unavailable()
	w.kubectl(t, "", "delete", "--wait=false", "namespace", shop)
	kinds := []string{"configmaps", "serviceaccounts"}
	for _, k := range v1beta1.Kinds[1:] {
		kinds = append(kinds, k.CRD())
	}
	w.kubectl(t, "", "-n", shop, "delete", "--all", "--wait=false", strings.Join(kinds, ","))
	w.allBecome(t, status.TerminatingStatus)
	w.proxy.inject(nil)
	rig.Soon(t, "the namespace is empty", func() bool {
		return w.kubectl(t, "", "-n", shop, "get", "--ignore-not-found", "-o", "name", strings.Join(kinds, ",")) == ""
	})
}
