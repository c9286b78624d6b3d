package e2e

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestFaults causes the fault of each step in one installation. After each step, the declared state and the state of
// the key server agree, and the audit log shows how many writes this took.
func TestFaults(t *testing.T) {
	t.Parallel() // it mostly waits, for its own cluster
	w := newWorld(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"the key server refuses for a while", w.refused},
		{"other clients write the same objects at the same time", w.contended},
		{"replies are lost after the write took effect", w.lostReplies},
		{"the key server is slow", w.slow},
		{"an answer comes later than anybody waits", w.tooLate},
		{"sessions end under the manager", w.endedSessions},
		{"the key server is killed in the middle of writing", w.killedKeyServer},
		{"the API server is killed", w.killedAPIServer},
	} {
		t.Run(step.name, func(t *testing.T) {
			step.run(t)
			w.proxy.inject(nil)
			w.agree(t)
			w.kubectl(t, "", "delete", "roles.trust.keyserver.dev,trustedcas,acltemplates", "--all")
			if left := w.roles(t); len(left) != 0 {
				t.Errorf("everything is deleted, and the key server still has %d roles", len(left))
			}
		})
	}
}

// agree waits until every object is Ready, and compares each with the state of the key server.
func (w *world) agree(t *testing.T) {
	t.Helper()
	var list unstructured.UnstructuredList
	waits := ""
	defer func() {
		if t.Failed() {
			t.Logf("the last that was not ready: %s", waits)
		}
	}()
	rig.Soon(t, "every object is ready", func() bool {
		out := w.kubectl(t, "", "get", "trust", "-A", "-o", "json")
		if err := list.UnmarshalJSON([]byte(out)); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if result, err := status.Compute(&list.Items[i]); err != nil || result.Status != status.CurrentStatus {
				waits = fmt.Sprintf("%s %s, %v: %v", list.Items[i].GetKind(), list.Items[i].GetName(), err, list.Items[i].Object["status"])
				return false
			}
		}
		return true
	})
	declared, held := map[string]string{}, w.held(t)
	for _, o := range list.Items {
		if o.GetKind() == "KeyServer" {
			continue
		}
		what, content := declaredBy(t, o)
		declared[what] = content
		if provenance, _, _ := unstructured.NestedString(o.Object, "status", "provenance"); provenance != "Created" {
			t.Errorf("%s was made by the manager, and its provenance is %q", what, provenance)
		}
	}
	if diff := cmp.Diff(declared, held); diff != "" {
		t.Errorf("every object is Ready; what is declared (-) and what the key server holds (+): %s", diff)
	}
}

// declaredBy returns the name and the expected content of the external object of a Ready object.
func declaredBy(t *testing.T, o unstructured.Unstructured) (what, content string) {
	t.Helper()
	text := func(fields ...string) string {
		s, _, _ := unstructured.NestedString(o.Object, fields...)
		return s
	}
	switch o.GetKind() {
	case "Role":
		operations, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "operations")
		ids := make([]string, len(operations))
		for i, name := range operations {
			at := slices.IndexFunc(keyserver.Operations, func(op keyserver.Operation) bool { return op.Name == name })
			if at < 0 {
				t.Fatalf("no operation is named %q", name)
			}
			ids[i] = keyserver.Operations[at].ID.Hex()
		}
		slices.Sort(ids)
		return "role " + text("status", "roleId"), fmt.Sprint(text("spec", "roleName"), ids)
	case "TrustedCA":
		return "CA " + text("status", "fingerprint"), ""
	case "ACLTemplate":
		count, _, _ := unstructured.NestedInt64(o.Object, "status", "memberCount")
		return "template " + text("status", "templateId"), fmt.Sprint(text("spec", "templateName"), " ", count)
	default:
		t.Fatalf("nothing compares a %s with the key server", o.GetKind())
		return "", ""
	}
}

// held returns the state of the key server, by the names that declaredBy returns.
func (w *world) held(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, r := range w.roles(t) {
		ids := make([]string, len(r.Operations))
		for i, id := range r.Operations {
			ids[i] = id.String()
		}
		slices.Sort(ids)
		all["role "+r.ID.String()] = fmt.Sprint(r.Name, ids)
	}
	cas, err := w.admin.ListTrustedCAs(t.Context(), schema.TrustedCAsQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for _, ca := range cas.TrustedCAs {
		if ca.CertHash == nil {
			t.Fatalf("the CA %s has no hash", ca.CertificateID)
		}
		all["CA "+hex.EncodeToString(*ca.CertHash)] = ""
	}
	templates, err := w.admin.ListACLTemplates(t.Context(), schema.ACLTemplateQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for _, template := range templates.Templates {
		all["template "+template.ID.String()] = fmt.Sprint(template.Name, " ", template.MemberCount)
	}
	return all
}

// several returns manifests of roles.
func several(n int, prefix string) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = role(fmt.Sprintf("%s-%d", strings.ToLower(prefix), i), fmt.Sprintf("%s %d", prefix, i), "HMAC Data")
	}
	return all
}

// spent checks that the number of writes since the count before is in a range.
func (w *world) spent(t *testing.T, before, atLeast, atMost int) {
	t.Helper()
	if n := w.countWrites(t) - before; n < atLeast || n > atMost {
		t.Errorf("it cost %d writes, want %d to %d: %v", n, atLeast, atMost, w.operations(t, writes...))
	}
}

func (w *world) refused(t *testing.T) {
	before := w.countWrites(t)
	var refusals atomic.Int32
	w.proxy.inject(func(r *http.Request) fault {
		if !isWrite(r) {
			return fault{}
		}
		refusals.Add(1)
		return fault{Status: http.StatusConflict, Answer: `{"code":"NOT_SAVED","detail":"a fresh read does not show it","saved":false}`}
	})
	const n = 5
	w.apply(t, several(n, "Refused")...)
	w.wait(t, "ksrole/refused-0", "Verified=False")
	if got := w.get(t, "ksrole/refused-0"); !strings.Contains(fmt.Sprint(got.Object["status"]), "NotVerified") {
		t.Errorf("the status does not say NotVerified: %v", got.Object["status"])
	}
	rig.Soon(t, "each is tried again", func() bool { return refusals.Load() >= 2*n })
	if refused := refusals.Load(); refused > 10*n {
		t.Errorf("%d objects were written %d times to a key server that keeps nothing", n, refused)
	}
	w.proxy.inject(nil)
	w.agree(t)
	w.spent(t, before, n, n)
}

// contended annotates the objects constantly, so that the API server rejects status updates with 409.
func (w *world) contended(t *testing.T) {
	before := w.countWrites(t)
	const n = 5
	w.apply(t, several(n, "Contended")...)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			for round := range 10 {
				if _, err := w.try(t, "", "annotate", "--overwrite", fmt.Sprintf("ksrole/contended-%d", i), fmt.Sprintf("example.com/round=%d", round)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	w.apply(t, strings.ReplaceAll(strings.Join(several(n, "Contended"), "\n---\n"), "[HMAC Data]", "[HMAC Data, Authorize Key]"))
	group.Wait()
	w.agree(t)
	// One creation and one change each, or one write if the object changed before its creation.
	w.spent(t, before, n, 2*n)
}

func (w *world) lostReplies(t *testing.T) {
	before := w.countWrites(t)
	var mu sync.Mutex
	cut := map[string]bool{} // the first write of each kind
	lose := func(r *http.Request) fault {
		mu.Lock()
		defer mu.Unlock()
		call := r.Method + " " + r.URL.Path
		if !isWrite(r) || cut[call] {
			return fault{}
		}
		cut[call] = true
		return fault{Cut: true}
	}
	w.proxy.inject(lose)
	w.apply(t, role("lost", "Lost", "HMAC Data"), trustedCA(t, "lost"), template("lost", "Lost", member("password/admin", "OWNER")))
	for _, object := range []string{"ksrole/lost", "tca/lost", "aclt/lost"} {
		w.wait(t, object, "Ready")
		if p, _, _ := unstructured.NestedString(w.get(t, object).Object, "status", "provenance"); p != "Created" {
			t.Errorf("%s: what the manager created counts as %q", object, p)
		}
	}
	if got := w.operations(t, "createRole", "addTrustedCA", "createACLTemplate"); got["addTrustedCA"] != 1 || got["createACLTemplate"] != 1 {
		t.Errorf("a creation whose reply was lost was repeated: %v", got)
	}
	w.apply(t, role("lost", "Lost", "HMAC Data", "Authorize Key"))
	w.agree(t)
	w.kubectl(t, "", "delete", "ksrole/lost", "tca/lost", "aclt/lost")
	if len(cut) < 5 {
		t.Errorf("replies of %d calls were lost, want of creations, changes and deletions: %v", len(cut), cut)
	}
	// Three creations, one change, three deletions. Changing a member may take one more write.
	w.spent(t, before, 7, 9)
}

func (w *world) slow(t *testing.T) {
	before := w.countWrites(t)
	w.proxy.inject(func(r *http.Request) fault {
		if strings.HasPrefix(r.URL.Path, "/api/changes") {
			return fault{}
		}
		return fault{Delay: 2 * time.Second}
	})
	const n = 3
	w.apply(t, several(n, "Slow")...)
	w.agree(t)
	w.spent(t, before, n, n)
}

// tooLate delays the reply to a write until the client has given up. The write takes effect, but the client does not
// know.
func (w *world) tooLate(t *testing.T) {
	before := w.countWrites(t)
	var once atomic.Bool
	w.proxy.inject(func(r *http.Request) fault {
		if isWrite(r) && once.CompareAndSwap(false, true) {
			return fault{Delay: 20 * time.Second}
		}
		return fault{}
	})
	w.apply(t, several(1, "Late")...)
	w.agree(t)
	if !once.Load() {
		t.Error("no answer was late")
	}
	w.spent(t, before, 1, 1)
}

// endedSessions ends the manager's session on the key server several times.
func (w *world) endedSessions(t *testing.T) {
	before, logins := w.countWrites(t), w.operations(t, "login")["login"]
	const n = 4
	for i := range n {
		session := w.proxy.session()
		if session == "" {
			t.Fatal("the manager has no session")
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, w.proxy.URL+"/api/sessions/current", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+session)
		resp, err := w.proxy.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode/100 != 2 {
			t.Fatalf("ending the session answers %s (%v)", resp.Status, err)
		}
		w.apply(t, role(fmt.Sprintf("ended-%d", i), fmt.Sprintf("Ended %d", i), "HMAC Data"))
		w.wait(t, fmt.Sprintf("ksrole/ended-%d", i), "Ready")
	}
	w.spent(t, before, n, n)
	if again := w.operations(t, "login")["login"] - logins; again < n || again > 3*n {
		t.Errorf("%d sessions were ended, and the manager has logged in %d times", n, again)
	}
}

func (w *world) killedKeyServer(t *testing.T) {
	before := w.countWrites(t)
	const n = 40
	var created atomic.Int32
	killed := make(chan struct{})
	w.proxy.inject(func(r *http.Request) fault {
		if isWrite(r) && created.Add(1) == n/4 {
			go func() {
				w.server.Kill()
				close(killed)
			}()
		}
		return fault{}
	})
	w.apply(t, several(n, "Killed")...)
	select {
	case <-killed:
	case <-time.After(rig.Patience):
		t.Fatal("nothing was written")
	}
	w.becomes(t, "ks/default", status.InProgressStatus)
	w.start(t, w.server.DataDir)
	w.agree(t)
	// Writes in flight during the kill may have taken effect without a record in the status: one for each worker.
	const workers = 8
	w.spent(t, before, n, n+workers)
}

func (w *world) killedAPIServer(t *testing.T) {
	const n = 5
	w.apply(t, several(n, "Kept")...)
	w.agree(t)
	before := w.countWrites(t)
	restart := w.killAPIServer(t)
	// The test changes the key server while the API server is down, so that the manager cannot read the declared state.
	for name, r := range w.roles(t) {
		if _, err := w.admin.DeleteRole(t.Context(), schema.ByID{ID: r.ID}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		break
	}
	restart()
	// The status still has the old state, because it could not be written. The manager may repair by cached objects,
	// and update the status later.
	rig.Soon(t, "the outside change is repaired, and recorded", func() bool {
		ids := w.kubectl(t, "", "get", "roles.trust.keyserver.dev", "-A", "-o", "jsonpath={.items[*].status.roleId}")
		held := w.roles(t)
		for _, r := range held {
			if !strings.Contains(ids, r.ID.String()) {
				return false
			}
		}
		return len(held) == n
	})
	w.agree(t)
	w.apply(t, role("after", "After", "HMAC Data"))
	w.wait(t, "ksrole/after", "Ready")
	// The test's deletion, its repair, and the new role.
	w.spent(t, before, 3, 3)
}
