package operator

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// The size of the measurement. Two values can be set by environment variables.
const (
	defaultObjects = 10_000 // BENCH_OBJECTS
	defaultResync  = 60     // BENCH_RESYNC, seconds
	probes         = 9      // repetitions of each latency measurement
	declarers      = 8      // goroutines that create objects
)

// BenchmarkOperator declares many objects at once, measures a resync without changes, and then measures single objects
// among all the others. Its time is the sum of these parts.
func BenchmarkOperator(b *testing.B) {
	n := setting(b, "BENCH_OBJECTS", defaultObjects)
	resync := time.Duration(setting(b, "BENCH_RESYNC", defaultResync)) * time.Second
	for b.Loop() {
		w := newWorld(b)
		heap, resident := memory(b)
		b.Logf("%d objects: %v", n, share(n))
		w.measureCreation(b, n, resync)
		w.measureRest(b, n, resync)
		w.measureNewcomer(b, n, resync)
		w.measureRepair(b)
		fullHeap, fullResident := memory(b)
		b.ReportMetric(fullHeap, "MiB-heap")
		b.ReportMetric((fullHeap-heap)*(1<<10)/float64(n), "KiB-heap/object")
		b.ReportMetric(fullResident, "MiB-RSS")
		b.Logf("memory: heap %.0f MiB (%.0f before), RSS %.0f MiB (%.0f before)", fullHeap, heap, fullResident, resident)
	}
}

func setting(b *testing.B, name string, otherwise int) int {
	b.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 10 {
		b.Fatalf("%s is %q; it must be a number of at least 10", name, text)
	}
	return n
}

// share returns the number of objects of each kind: mostly roles.
func share(n int) map[string]int {
	return map[string]int{"Role": n - 4*(n/10), "ACLTemplate": n / 10, "TrustedCA": n / 10, "Principal": n / 10, "Key": n / 10}
}

// measureCreation declares all objects, and counts the writes of the manager until each is Ready.
func (w *world) measureCreation(b *testing.B, n int, resync time.Duration) {
	b.Helper()
	writes, calls, effects, began := w.writes.now(), w.calls.now(), w.effects(b), time.Now()
	w.declare(b, n, resync)
	declared := time.Since(began)
	next := time.Now()
	rig.Within(b, patience, "all objects are ready", func() bool {
		ready := verified(b)
		if time.Now().After(next) {
			b.Logf("%d of %d objects are ready after %s", ready, n, time.Since(began).Round(time.Second))
			next = time.Now().Add(20 * time.Second)
		}
		return ready >= n
	})
	took := time.Since(began)
	spent := w.writes.now().since(writes)
	asked := w.calls.now().since(calls)
	done := w.effects(b).since(effects)
	objects := spent.sum("roles", "acltemplates", "trustedcas", "principals", "keys")
	b.ReportMetric(float64(objects)/float64(n), "cluster-writes/object")
	b.ReportMetric(float64(spent.sum("events"))/float64(n), "events/object")
	b.ReportMetric(float64(done.sum(""))/float64(n), "keyserver-writes/object")
	b.ReportMetric(float64(n)/took.Seconds(), "objects/s-until-ready")
	b.Logf("declared in %s, all ready after %s: %v in the cluster, %v on the key server, asked %v",
		declared.Round(time.Millisecond), took.Round(time.Millisecond), spent, done, asked)
}

// verified returns the number of Ready objects, without KeyServers.
func verified(b *testing.B) (n int) {
	b.Helper()
	for kind := range share(0) {
		n += int(metric(b, "keyserver_objects", "kind", kind, "reason", "Verified"))
	}
	return n
}

// passes returns how often objects have been reconciled.
func passes(b *testing.B) float64 {
	b.Helper()
	return metric(b, "controller_runtime_reconcile_total")
}

// measureRest counts the requests of the manager while every object is resynchronized once and
// nothing has changed.
func (w *world) measureRest(b *testing.B, n int, resync time.Duration) {
	b.Helper()
	time.Sleep(5 * time.Second) // batched requests, like events, are sent in the meantime
	writes, calls, effects, rounds := w.writes.now(), w.calls.now(), w.effects(b), passes(b)
	time.Sleep(resync + resync/10) // the jitter is a tenth
	rig.Within(b, patience, "each object had its turn", func() bool { return passes(b)-rounds >= float64(n) })
	spent := w.writes.now().since(writes)
	asked := w.calls.now().since(calls)
	done := w.effects(b).since(effects)
	b.ReportMetric(float64(spent.sum("")+done.sum("")), "writes-at-rest")
	b.ReportMetric(float64(asked.sum("")), "requests-at-rest")
	b.Logf("at rest, in %.0f passes over %d objects: %v in the cluster, %v on the key server, asked %v",
		passes(b)-rounds, n, spent, done, asked)
}

// measureNewcomer queues all objects, as after an outage of a key server. It declares another object while they wait.
func (w *world) measureNewcomer(b *testing.B, n int, resync time.Duration) {
	b.Helper()
	var took []time.Duration
	for i := range probes {
		w.wakeEverybody(b, n, i)
		backlog := metric(b, "workqueue_depth")
		role := newRole(n+i, resync)
		seen, stop := w.watch(b, role)
		began := time.Now()
		must(b, w.kube.Create(b.Context(), role), "declare a role")
		awaitReady(b, seen)
		took = append(took, time.Since(began))
		stop()
		b.Logf("ready %s after it was declared; %.0f others waited before, %.0f after",
			took[i].Round(time.Millisecond), backlog, metric(b, "workqueue_depth"))
		rig.Within(b, patience, "all have had their turn", func() bool { return metric(b, "workqueue_depth") == 0 })
	}
	report(b, took, "ms-until-new-ready")
}

// wakeEverybody makes the manager read the key server again, and waits until the objects are queued.
func (w *world) wakeEverybody(b *testing.B, n, i int) {
	b.Helper()
	ks := &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: keyServerName}}
	before := ks.DeepCopy()
	ks.Annotations = map[string]string{v1beta1.AnnotationReconcileRequestedAt: fmt.Sprint("probe ", i)}
	must(b, w.kube.Patch(b.Context(), ks, client.MergeFrom(before)), "request a reconcile")
	began, rounds := time.Now(), passes(b)
	rig.Within(b, patience, "the objects stand in line", func() bool {
		return metric(b, "workqueue_depth") >= float64(n)/10 || passes(b)-rounds >= float64(n)/2 || time.Since(began) > time.Minute
	})
}

func (w *world) watch(b *testing.B, role *v1beta1.Role) (<-chan watch.Event, func()) {
	b.Helper()
	seen, err := w.kube.Watch(b.Context(), &v1beta1.RoleList{}, client.InNamespace(role.Namespace), client.MatchingFields{"metadata.name": role.Name})
	must(b, err, "watch a role")
	return seen.ResultChan(), seen.Stop
}

func awaitReady(b *testing.B, seen <-chan watch.Event) {
	b.Helper()
	for e := range seen {
		if role, ok := e.Object.(*v1beta1.Role); ok && meta.IsStatusConditionTrue(role.Status.Conditions, v1beta1.ConditionReady) {
			return
		}
	}
	b.Fatal("the watch ended before the role was ready")
}

// measureRepair changes roles on the key server directly, and follows the public change feed until
// it shows the repair.
func (w *world) measureRepair(b *testing.B) {
	b.Helper()
	byName := map[string]schema.Role{}
	list, err := w.admin.ListRoles(b.Context())
	must(b, err, "list roles")
	for _, r := range list.Roles {
		byName[r.Name] = r
	}
	var took []time.Duration
	for i := range probes {
		role := byName[roleName(i)]
		cursor := w.endOfFeed(b)
		began := time.Now() // before the response, because the manager may repair the role earlier
		_, err := w.admin.UpdateRole(b.Context(), schema.UpdateRoleRequest{ID: role.ID, Operations: []schema.HexID{}})
		must(b, err, "change a role outside")
		w.awaitChanges(b, cursor, role.ID, 2) // the outside change and its repair
		took = append(took, time.Since(began))
	}
	report(b, took, "ms-until-repaired")
	list, err = w.admin.ListRoles(b.Context())
	must(b, err, "list roles")
	repaired := 0
	for _, r := range list.Roles {
		if was, ok := byName[r.Name]; ok && slices.Equal(was.Operations, r.Operations) {
			repaired++
		}
	}
	if repaired != len(byName) {
		b.Errorf("%d of %d roles are as declared again", repaired, len(byName))
	}
}

func (w *world) endOfFeed(b *testing.B) (cursor int64) {
	b.Helper()
	for {
		page, err := w.admin.ListChanges(b.Context(), schema.ChangesQuery{After: &cursor})
		must(b, err, "read the change feed")
		if page.Cursor == cursor || len(page.Changes) == 0 && !page.Reset {
			return page.Cursor
		}
		cursor = page.Cursor
	}
}

func (w *world) awaitChanges(b *testing.B, cursor int64, id schema.HexID, n int) {
	b.Helper()
	for n > 0 {
		page, err := w.admin.ListChanges(b.Context(), schema.ChangesQuery{After: &cursor, Wait: new(30)})
		must(b, err, "follow the change feed")
		for _, c := range page.Changes {
			if c.ID == id {
				n--
			}
		}
		cursor = page.Cursor
	}
}

func report(b *testing.B, took []time.Duration, unit string) {
	b.Helper()
	slices.Sort(took)
	milliseconds := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(milliseconds(took[len(took)/2]), unit)
	b.ReportMetric(milliseconds(took[len(took)-1]), unit+"-worst")
	b.Logf("%s: %v", unit, took)
}

// declare creates the objects concurrently.
func (w *world) declare(b *testing.B, n int, resync time.Duration) {
	b.Helper()
	ctx, cancel := context.WithCancelCause(b.Context())
	defer cancel(nil)
	todo := make(chan client.Object)
	var group sync.WaitGroup
	for range declarers {
		group.Go(func() {
			for obj := range todo {
				if err := w.kube.Create(ctx, obj); err != nil {
					cancel(err)
				}
			}
		})
	}
	counts := share(n)
	for i := range counts["Role"] {
		todo <- newRole(i, resync)
	}
	for i := range counts["ACLTemplate"] {
		todo <- newTemplate(i, resync)
	}
	for i := range counts["TrustedCA"] {
		todo <- newCA(b, i, resync)
	}
	for i := range counts["Principal"] {
		todo <- newPrincipal(i, resync)
	}
	for i := range counts["Key"] {
		todo <- newKey(i, resync)
	}
	close(todo)
	group.Wait()
	if err := context.Cause(ctx); err != nil {
		b.Fatalf("declare the objects: %v", err)
	}
}

func roleName(i int) string { return fmt.Sprintf("Role %05d", i) }

func shared(resync time.Duration) v1beta1.ManagedSpec {
	return v1beta1.ManagedSpec{ResyncInterval: &metav1.Duration{Duration: resync}}
}

func newRole(i int, resync time.Duration) *v1beta1.Role {
	name := roleName(i)
	return &v1beta1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("role-%05d", i)},
		Spec: v1beta1.RoleSpec{
			ManagedSpec: shared(resync), RoleName: &name,
			Operations: []string{"Authorize Key", "HMAC Data", "List Operations", "Read Key Metadata"},
		},
	}
}

func newTemplate(i int, resync time.Duration) *v1beta1.ACLTemplate {
	return &v1beta1.ACLTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("template-%05d", i)},
		Spec: v1beta1.ACLTemplateSpec{
			ManagedSpec: shared(resync), TemplateName: fmt.Sprintf("Template %05d", i),
			Members: []v1beta1.ACLTemplateMember{{Principal: "password/admin", Rights: []v1beta1.Right{"OWNER"}}},
		},
	}
}

// newPrincipal returns a workload that holds a role.
func newPrincipal(i int, resync time.Duration) *v1beta1.Principal {
	issuer, role := "https://issuer.example", "Encryptor"
	return &v1beta1.Principal{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("workload-%05d", i)},
		Spec: v1beta1.PrincipalSpec{
			ManagedSpec:    shared(resync),
			ServiceAccount: &v1beta1.PrincipalServiceAccount{Name: fmt.Sprintf("workload-%05d", i), Issuer: &issuer},
			Roles:          []v1beta1.PrincipalRole{{Name: &role}},
		},
	}
}

// newKey returns a key of the workload with the same number, which may be created later.
func newKey(i int, resync time.Duration) *v1beta1.Key {
	return &v1beta1.Key{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("key-%05d", i)},
		Spec: v1beta1.KeySpec{
			ManagedSpec: shared(resync), Algorithm: "HMAC-SHA384", DestroyAfterDays: 30,
			Members: []v1beta1.ACLTemplateMember{{Principal: fmt.Sprintf("xauth/system:serviceaccount:default:workload-%05d", i), Rights: []v1beta1.Right{"READ"}}},
		},
	}
}

func newCA(b *testing.B, i int, resync time.Duration) *v1beta1.TrustedCA {
	b.Helper()
	text := rig.NewCA(b, fmt.Sprintf("CA %05d", i)).PEM
	return &v1beta1.TrustedCA{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("ca-%05d", i)},
		Spec:       v1beta1.TrustedCASpec{ManagedSpec: shared(resync), Certificate: v1beta1.CertificateSource{Inline: &text}},
	}
}
