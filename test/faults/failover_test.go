package faults

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/pgtest"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestFailover: the primary of a synchronous pair is killed under load, and its standby
// promoted. The replicas go on by themselves, and all that they have acknowledged is there.
func TestFailover(t *testing.T) {
	primary := pgtest.Start(t)
	url := primary.Database(t)
	standby := primary.Standby(t, "second")
	primary.SQL(t, `ALTER SYSTEM SET synchronous_standby_names = 'second'`)
	primary.SQL(t, `SELECT pg_reload_conf()`)
	all := replicas(t, 3, "--database-url", pgtest.On(url, primary, standby))
	_, stopLoad := load(t, all, 2)

	// Writers make roles, and remember those that were acknowledged.
	var mu sync.Mutex
	acknowledged := map[string]bool{}
	var first time.Time
	var promoted time.Time
	end := make(chan struct{})
	var writing sync.WaitGroup
	for i, r := range all {
		writing.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-end:
					return
				default:
				}
				name := fmt.Sprintf("role %d of %d", n, i)
				_, err := r.admin.CreateRole(t.Context(), schema.CreateRoleRequest{Name: name})
				mu.Lock()
				if err == nil {
					acknowledged[name] = true
					if !promoted.IsZero() && first.IsZero() {
						first = time.Now()
					}
				}
				mu.Unlock()
				pause(t.Context(), 20*time.Millisecond)
			}
		})
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(acknowledged)
	}
	rig.Soon(t, "something is written", func() bool { return count() > 30 })
	primary.Kill(t)
	before := count()
	standby.Promote(t)
	mu.Lock()
	promoted = time.Now()
	mu.Unlock()
	rig.Soon(t, "writes go on", func() bool { return count() > before+30 })
	for i, r := range all {
		mine := r.done.Load()
		rig.Soon(t, fmt.Sprint("keys are used through replica ", i), func() bool { return r.done.Load() > mine })
	}
	close(end)
	writing.Wait()
	stopLoad()
	t.Logf("%d writes were acknowledged, %d of them before; the first one came %v after the promotion", count(), before, first.Sub(promoted).Round(time.Millisecond))

	there := map[string]bool{}
	roles, err := all[2].admin.ListRoles(t.Context())
	rig.Must(t, err)
	for _, r := range roles.Roles {
		there[r.Name] = true
	}
	for name := range acknowledged {
		if !there[name] {
			t.Errorf("%s was acknowledged and is gone", name)
		}
	}
	for _, r := range all {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	}
	if out, err := built.Run("audit", "verify", "--database-url", pgtest.On(url, standby)); err != nil {
		t.Errorf("the trail: %v\n%s", err, out)
	}
}
