package chaos

import (
	"bufio"
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// resourceBaseline has the resources that idle processes used before a round. Processes that were not killed have to return to that
// use.
type resourceBaseline struct {
	w  *world
	by map[*member]resourceUsage
}

// resourceUsage has the resources that one process uses.
type resourceUsage struct {
	life                  int64
	goroutines, files, mb float64
}

// The additional resources that an idle process may use after a round, for persistent connections and caches. A leak
// per request exceeds them after one round.
const (
	moreGoroutines = 120
	moreFiles      = 60
	moreMemory     = 96 // live MB
)

// measure returns the resources that each idle process uses.
func (w *world) measure(t *testing.T) *resourceBaseline {
	t.Helper()
	w.rest()
	k := &resourceBaseline{w, map[*member]resourceUsage{}}
	for _, s := range w.sites {
		for _, m := range s.members {
			if now, err := m.holds(t.Context()); err == nil {
				k.by[m] = now
			}
		}
	}
	return k
}

// rest closes idle connections.
func (w *world) rest() {
	for _, one := range w.workers {
		for _, c := range one.members {
			c.CloseIdleConnections()
		}
	}
}

func (k *resourceBaseline) check(t *testing.T) {
	t.Helper()
	within := time.Now().Add(rig.Patience / 2)
	for m, before := range k.by {
		if before.life != m.life.Load() {
			continue
		}
		var now resourceUsage
		for {
			k.w.rest()
			var err error
			now, err = m.holds(t.Context())
			if err == nil && now.goroutines <= before.goroutines+moreGoroutines && now.files <= before.files+moreFiles && now.mb <= before.mb+moreMemory {
				break
			}
			if time.Now().After(within) {
				t.Errorf("%s does not come back to what it held: %+v, and before the round %+v", m.name, now, before)
				break
			}
			time.Sleep(time.Second)
		}
	}
}

// holds reads the metrics of the process. The live memory is half of the heap size at which the next collection starts.
func (m *member) holds(ctx context.Context) (resourceUsage, error) {
	values := map[string]float64{}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.metrics+"/metrics", http.NoBody)
	if err != nil {
		return resourceUsage{}, err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		return resourceUsage{}, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			values[name] = v
		}
	}
	return resourceUsage{m.life.Load(), values["go_goroutines"], values["process_open_fds"], values["go_memstats_next_gc_bytes"] / 2 / 1e6}, nil
}
