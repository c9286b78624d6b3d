package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/argocd"
)

// judge returns the health of an object according to Flux. It fails the test if Argo CD disagrees.
func (c *cluster) judge(t *testing.T, object string) status.Status {
	t.Helper()
	return judged(t, c.get(t, object))
}

func judged(t *testing.T, obj *unstructured.Unstructured) status.Status {
	t.Helper()
	result, err := status.Compute(obj)
	if err != nil {
		t.Fatal(err)
	}
	same := map[status.Status][]string{
		status.CurrentStatus:     {argocd.Healthy},
		status.FailedStatus:      {argocd.Degraded},
		status.TerminatingStatus: {argocd.Progressing},
		// A paused object waits for a person, and kstatus has no such status.
		status.InProgressStatus: {argocd.Progressing, argocd.Suspended},
	}[result.Status]
	if health := argocd.Judge(t, argocd.ConfigMap(t), obj); !slices.Contains(same, health.Status) {
		t.Errorf("%s %s is %s to Flux and %s to Argo CD: %s", obj.GetKind(), obj.GetName(), result.Status, health.Status, health.Message)
	}
	return result.Status
}

func (c *cluster) becomes(t *testing.T, object string, want status.Status) {
	t.Helper()
	rig.Soon(t, object+" is "+want.String(), func() bool { return c.judge(t, object) == want })
}

func (w *world) health(t *testing.T) {
	// There is no KeyServer of this name: the object is not ready, and has not failed either.
	w.apply(t, strings.Replace(role("waiting", "Waiting", "HMAC Data"), "spec: {", "spec: {keyServerRef: {name: nowhere}, ", 1))
	w.becomes(t, "ksrole/waiting", status.InProgressStatus)
	if _, err := w.try(t, "", "wait", "--for=condition=Ready", "--timeout=1s", "ksrole/waiting"); err == nil {
		t.Error("an object that waits is Ready to kubectl wait")
	}

	w.apply(t, role("healthy", "Healthy", "HMAC Data"))
	w.becomes(t, "ksrole/healthy", status.CurrentStatus)
	w.becomes(t, "ks/default", status.CurrentStatus)

	// Two objects declare the same role: the newer object cannot become Ready without a change.
	w.apply(t, role("younger", "Healthy", "HMAC Data"))
	w.becomes(t, "ksrole/younger", status.FailedStatus)
	if got := w.judge(t, "ksrole/healthy"); got != status.CurrentStatus {
		t.Errorf("the older one is %s", got)
	}

	// An edit is in progress until the manager has read it back. The status Current never refers to the previous
	// generation.
	w.kubectl(t, "", "annotate", "ksrole/healthy", "trust.keyserver.dev/paused=true")
	w.kubectl(t, "", "patch", "ksrole/healthy", "--type=merge", "-p", `{"spec":{"operations":["List Roles"]}}`)
	if got := w.judge(t, "ksrole/healthy"); got == status.CurrentStatus {
		t.Error("an edit that nobody has looked at counts as Current")
	}
	w.kubectl(t, "", "annotate", "ksrole/healthy", "trust.keyserver.dev/paused-")
	w.becomes(t, "ksrole/healthy", status.CurrentStatus)

	// A deletion that waits until no object depends on the KeyServer.
	w.kubectl(t, "", "delete", "--wait=false", "ks/default")
	w.becomes(t, "ks/default", status.TerminatingStatus)
	w.kubectl(t, "", "delete", "ksrole/waiting", "ksrole/younger", "ksrole/healthy")
	rig.Soon(t, "the KeyServer goes with its last dependant", func() bool {
		out, err := w.try(t, "", "get", "ks", "--ignore-not-found", "default")
		return err == nil && out == ""
	})
	w.declare(t, w.cluster)
	w.wait(t, "ks/default", "Ready")
}
