package chaos

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
	"github.com/keyserver-operator/keyserver-operator/test/rig/hsm"
)

// runsVariable is the number of measurements of each fault: 5 for docs/capacity.md.
const runsVariable = "BENCH_RUNS"

// outage is how long a fault lasts after all conditions show it. By then, the manager polls less often.
const outage = 10 * time.Second

// BenchmarkConditions measures how soon the conditions of a KeyServer and of its objects follow the state of the key
// server: from a fault until they are not Ready, and from the healing until they are Ready again. A client uses a key
// all the time.
func BenchmarkConditions(b *testing.B) {
	rig.Must(b, build())
	b.Run("Embedded", func(b *testing.B) {
		s := embedded(b, 2)
		c := newCluster(b, s)
		s.used(b)
		one := s.members[0]
		b.Run("KeyServerKilled", func(b *testing.B) {
			c.measure(b, func(testing.TB) func() {
				one.server.Kill()
				return func() { one.start(b) }
			})
		})
		b.Run("DiskFull", func(b *testing.B) {
			if s.disk == nil {
				b.Skip("this machine mounts no disk for tests")
			}
			c.measure(b, func(t testing.TB) func() {
				s.disk.fill(t)
				return func() { s.disk.free(t) }
			})
		})
		b.Run("DataDirectoryRemoved", func(b *testing.B) {
			c.measure(b, func(t testing.TB) func() {
				rig.Must(t, os.Rename(one.dir, one.dir+".away"))
				return func() { rig.Must(t, os.Rename(one.dir+".away", one.dir)) }
			})
		})
	})
	b.Run("PostgreSQL", func(b *testing.B) {
		s := replicated(b, 3, 2)
		c := newCluster(b, s)
		s.used(b)
		b.Run("DatabaseKilled", func(b *testing.B) {
			c.measure(b, func(t testing.TB) func() {
				s.database.Kill(t)
				return func() { s.database.Restart(t) }
			})
		})
		b.Run("DatabaseReadOnly", func(b *testing.B) {
			c.measure(b, func(t testing.TB) func() {
				set := func(to string) {
					s.database.SQL(t, `ALTER SYSTEM SET default_transaction_read_only = `+to)
					s.database.SQL(t, `SELECT pg_reload_conf()`)
				}
				set("on")
				return func() { set("off") }
			})
		})
		b.Run("ReplicaFrozen", func(b *testing.B) { // the replica that the manager uses
			c.measure(b, func(t testing.TB) func() { return s.members[0].server.Freeze(t) })
		})
	})
	b.Run("Token", func(b *testing.B) {
		s, plugin := byToken(b)
		c := newCluster(b, s)
		b.Run("PluginKilled", func(b *testing.B) {
			c.measure(b, func(testing.TB) func() {
				plugin.kill()
				return plugin.start
			})
		})
		b.Run("PluginFrozen", func(b *testing.B) {
			c.measure(b, func(t testing.TB) func() {
				plugin.Signal(t, syscall.SIGSTOP)
				return func() { plugin.Signal(t, syscall.SIGCONT) }
			})
		})
	})
	b.Run("DatabaseWentBack", func(b *testing.B) {
		measured(b, func(n int) followed { return wentBack(b, n) })
	})
}

// kmsPlugin is a KMS plugin that can be restarted, with a key-encryption key.
type kmsPlugin struct {
	*hsm.Plugin
	begin func() *hsm.Plugin
}

func (k *kmsPlugin) kill()  { k.Kill() }
func (k *kmsPlugin) start() { k.Plugin = k.begin() }

// byToken starts a site whose key-encryption key is on a PKCS #11 token.
func byToken(b *testing.B) (*site, *kmsPlugin) {
	b.Helper()
	token, socket := hsm.New(b, "house"), filepath.Join(b.TempDir(), "socket")
	token.Key(b, "kek")
	k := &kmsPlugin{begin: func() *hsm.Plugin { return token.Serve(b, socket, "kek") }}
	k.start()
	s := newSite("by a token", 2)
	dir := filepath.Join(b.TempDir(), "data")
	s.state = []string{"--data-dir", dir}
	s.add(b, dir, "--kek", "kmsv2://"+socket)
	s.open(b)
	return s, k
}

// wentBack kills a primary database whose standby lacks the newest changes.
func wentBack(b *testing.B, n int) (took followed) {
	b.Helper()
	primary := pgtest.Start(b)
	url := primary.Database(b)
	standby := primary.Standby(b, "second")
	s := newSite(fmt.Sprint("pair ", n), schema.SystemID(4+n))
	s.add(b, filepath.Join(b.TempDir(), "data"), "--database-url", pgtest.On(url, primary, standby), "--kek", program.KEK)
	s.open(b)
	c := newCluster(b, s)
	c.await(b, true)
	standby.Kill(b)
	for range 20 { // the standby lacks these keys
		_, err := s.admin.MintKey(b.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
		rig.Must(b, err)
	}
	took = c.follow(b, func(t testing.TB) func() {
		primary.Kill(t)
		return func() {
			standby.Restart(t)
			standby.Promote(t)
		}
	})
	c.stop(b)
	return took
}

// used uses a key until the benchmark ends. Without load, a key server does not notice a broken database.
func (s *site) used(b *testing.B) {
	b.Helper()
	key, err := s.admin.MintKey(b.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	rig.Must(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan struct{})
	user := s.client(b, 0, program.NoRetries)
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_, _ = user.HMAC(ctx, key.TTag, strings.NewReader("message")) // fails during a fault
			time.Sleep(20 * time.Millisecond)
		}
	}()
	b.Cleanup(func() { cancel(); <-ended })
}

// followed has the time that conditions took to change, and their reasons.
type followed struct {
	server, objects         time.Duration // until they are not Ready
	serverBack, objectsBack time.Duration // until they are Ready again
	reasons                 string
}

// measure injects a fault runsVariable times.
func (c *cluster) measure(b *testing.B, breaks func(testing.TB) (heal func())) {
	b.Helper()
	measured(b, func(int) followed {
		c.await(b, true)
		return c.follow(b, breaks)
	})
}

func measured(b *testing.B, once func(n int) followed) {
	b.Helper()
	runs, err := strconv.Atoi(cmp.Or(os.Getenv(runsVariable), "1"))
	if err != nil || runs < 1 {
		b.Fatalf("%s is %q, and has to be a number from 1 on", runsVariable, os.Getenv(runsVariable))
	}
	for b.Loop() {
		all := map[string][]time.Duration{}
		said := map[string]bool{}
		for n := range runs {
			took := once(n)
			fmt.Fprintf(os.Stderr, "run %d: %+v\n", n+1, took)
			all["keyserver-false"] = append(all["keyserver-false"], took.server)
			all["objects-false"] = append(all["objects-false"], took.objects)
			all["keyserver-back"] = append(all["keyserver-back"], took.serverBack)
			all["objects-back"] = append(all["objects-back"], took.objectsBack)
			said[took.reasons] = true
		}
		for unit, each := range all {
			slices.Sort(each)
			b.ReportMetric(float64(each[len(each)/2].Milliseconds()), unit+"-median-ms")
			b.ReportMetric(float64(each[len(each)-1].Milliseconds()), unit+"-worst-ms")
		}
		b.Logf("they say %s", strings.Join(slices.Sorted(maps.Keys(said)), "; "))
	}
	b.ReportMetric(0, "ns/op") // most of it is the outage
}

// follow injects a fault and heals it.
func (c *cluster) follow(t testing.TB, breaks func(testing.TB) (heal func())) (took followed) {
	t.Helper()
	heal := breaks(t)
	took.server, took.objects, took.reasons = c.changed(t, time.Now(), false)
	time.Sleep(outage)
	heal()
	took.serverBack, took.objectsBack, _ = c.changed(t, time.Now(), true)
	return took
}

// changed waits until the KeyServer and all objects are Ready, or none is. It returns the durations for the KeyServer
// and the objects, and the reasons.
func (c *cluster) changed(t testing.TB, since time.Time, to bool) (server, objects time.Duration, reasons string) {
	t.Helper()
	var of [2]string
	rig.Soon(t, fmt.Sprint("conditions change, all to ", to), func() bool {
		one, all, err := c.conditions(t.Context())
		if err != nil {
			return false
		}
		if server == 0 && isReady(one) == to {
			server, of[0] = time.Since(since), one.Reason
		}
		if objects == 0 && !slices.ContainsFunc(all, func(c metav1.Condition) bool { return isReady(c) != to }) {
			objects = time.Since(since)
			for _, c := range all {
				of[1] = c.Reason
			}
		}
		return server > 0 && objects > 0
	})
	return server.Round(time.Millisecond), objects.Round(time.Millisecond), of[0] + ", objects " + of[1]
}

// await waits until the KeyServer and all objects are Ready, or none is.
func (c *cluster) await(t testing.TB, ready bool) {
	t.Helper()
	_, _, _ = c.changed(t, time.Now(), ready)
}

func isReady(c metav1.Condition) bool { return c.Status == metav1.ConditionTrue }

// conditions returns the Ready conditions of the KeyServer and of all declared objects.
func (c *cluster) conditions(ctx context.Context) (server metav1.Condition, objects []metav1.Condition, err error) {
	if server, err = controlplane.Ready(ctx, c.kube, &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: "default"}}); err != nil {
		return server, nil, err
	}
	note := func(status v1beta1.ManagedStatus) {
		one := metav1.Condition{}
		if ready := meta.FindStatusCondition(status.Conditions, v1beta1.ConditionReady); ready != nil {
			one = *ready
		}
		objects = append(objects, one)
	}
	var roles v1beta1.RoleList
	if err := c.kube.List(ctx, &roles, kube.InNamespace(namespace)); err != nil {
		return server, nil, err
	}
	for i := range roles.Items {
		note(roles.Items[i].Status.ManagedStatus)
	}
	var templates v1beta1.ACLTemplateList
	if err := c.kube.List(ctx, &templates, kube.InNamespace(namespace)); err != nil {
		return server, nil, err
	}
	for i := range templates.Items {
		note(templates.Items[i].Status.ManagedStatus)
	}
	return server, objects, nil
}
