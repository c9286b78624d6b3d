package operator

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// tally counts requests by name.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func newTally() *tally { return &tally{n: map[string]int{}} }

// count counts the requests that pass through a transport. name returns the name under which a
// request is counted, or "" if it is not.
func (t *tally) count(next http.RoundTripper, name func(*http.Request) string) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if about := name(r); about != "" {
			t.mu.Lock()
			t.n[about]++
			t.mu.Unlock()
		}
		return next.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// now returns a copy of the counts.
func (t *tally) now() counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.n)
}

type counts map[string]int

// since returns the differences to an earlier copy.
func (c counts) since(before counts) counts {
	d := counts{}
	for k, n := range c {
		if n -= before[k]; n != 0 {
			d[k] = n
		}
	}
	return d
}

// sum adds the counts whose name begins with one of the prefixes.
func (c counts) sum(prefixes ...string) (total int) {
	for k, n := range c {
		for _, p := range prefixes {
			if strings.HasPrefix(k, p) {
				total += n
				break
			}
		}
	}
	return total
}

// clusterWrite returns the resource of a write to the API server: "roles", "roles/status", "events".
func clusterWrite(r *http.Request) string {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return ""
	}
	segments := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	for i, s := range segments {
		if s == "namespaces" && len(segments) > i+2 {
			segments = segments[i+2:]
			break
		}
	}
	if len(segments) == 3 { // resource, name, subresource
		return segments[0] + "/" + segments[2]
	}
	return segments[0]
}

// keyServerCall returns the method and the first segment of a call to the key server: "POST roles".
// The long poll of the change feed is not counted, because it causes no load.
func keyServerCall(r *http.Request) string {
	noun, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/api/"), "/")
	if noun == "changes" {
		return ""
	}
	return r.Method + " " + noun
}

// effects are the key server operations that change objects of the kinds in this benchmark.
var effects = []string{
	"createRole", "updateRole", "deleteRole", "addTrustedCA", "removeTrustedCA",
	"createACLTemplate", "updateACLTemplate", "deleteACLTemplate", "changeACLTemplateMembers",
	"createPrincipal", "updatePrincipalRoles", "updatePrincipalFlags", "createKey", "amendACL", "rotateKey",
}

// effects counts the rows of the audit log that had an effect.
func (w *world) effects(b *testing.B) counts {
	b.Helper()
	c := counts{}
	for _, operation := range effects {
		limit := 1000
		for q := (schema.AuditQuery{Operation: operation, Limit: &limit}); ; {
			page, err := w.admin.ListAuditEntries(b.Context(), q)
			must(b, err, "read the audit trail")
			for _, e := range page.Entries {
				if e.Outcome == "allowed" {
					c[operation]++
				}
			}
			if page.Next == nil {
				break
			}
			q.Cursor = *page.Next
		}
	}
	return c
}

// metric adds the series of a manager metric that have the given labels: names and values.
func metric(b *testing.B, name string, labels ...string) (total float64) {
	b.Helper()
	families, err := metrics.Registry.Gather()
	must(b, err, "gather metrics")
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			has := map[string]string{}
			for _, l := range m.GetLabel() {
				has[l.GetName()] = l.GetValue()
			}
			if agrees(has, labels) {
				total += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return total
}

func agrees(has map[string]string, want []string) bool {
	for i := 0; i < len(want); i += 2 {
		if has[want[i]] != want[i+1] {
			return false
		}
	}
	return true
}

// memory returns the memory of this process in MiB: the heap after a collection, and the resident size.
func memory(b *testing.B) (heap, resident float64) {
	b.Helper()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	text, err := os.ReadFile("/proc/self/status")
	must(b, err, "read the status of this process")
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
			must(b, err, "read VmRSS")
			return float64(m.HeapAlloc) / (1 << 20), kib / (1 << 10)
		}
	}
	b.Fatal(fmt.Errorf("no VmRSS in %s", text))
	return 0, 0
}
