package supportbundle

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/cluster"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// clusterOf returns a cluster with a fake API server.
func clusterOf(t *testing.T, answer http.HandlerFunc) Cluster {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	c, err := cluster.New(&rest.Config{Host: s.URL})
	rig.Must(t, err)
	return Cluster{Client: c, Namespace: "n", Lines: 10, LogTime: time.Hour, LogsTime: time.Hour, Progress: func(string) {}}
}

// logsOfAll packs a log of each container. It returns the files and the error of each entry, by name.
func logsOfAll(t *testing.T, c Cluster, containers ...string) (map[string]rig.Packed, map[string]string) {
	t.Helper()
	var packed bytes.Buffer
	w := New(t.Context(), &packed, time.Time{})
	var all []log
	for _, container := range containers {
		all = append(all, log{"p", container, false})
	}
	rig.Must(t, w.logs(t.Context(), c, all))
	rig.Must(t, w.Close())
	wrong := map[string]string{}
	for _, l := range w.Files() {
		wrong[l.Name] = l.Error
	}
	return rig.Unpacked(t, packed.Bytes()), wrong
}

func hang(w http.ResponseWriter, r *http.Request, before string) {
	_, _ = io.WriteString(w, before)
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// TestALogThatDoesNotEnd: the bundle has the complete lines that arrived before the time limit.
func TestALogThatDoesNotEnd(t *testing.T) {
	c := clusterOf(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("container") {
		case "whole":
			_, _ = io.WriteString(w, line(1))
		case "silent":
			hang(w, r, "")
		default:
			hang(w, r, line(2)+line(3)[:len(line(3))-2])
		}
	})
	c.LogTime = 2 * time.Second
	files, wrong := logsOfAll(t, c, "whole", "silent", "slow")
	const why = "the log could not be read to its end within 2s"
	if wrong["logs/p.whole.log"] != "" || wrong["logs/p.silent.log"] != why || wrong["logs/p.slow.log"] != why {
		t.Errorf("files.json says %q", wrong)
	}
	if got := files["support-bundle/logs/p.slow.log"].Text; got != line(2) {
		t.Errorf("of the slow log is %q", got)
	}
	if _, ok := files["support-bundle/logs/p.silent.log"]; ok || files["support-bundle/logs/p.whole.log"].Text != line(1) {
		t.Errorf("the files are %v", files)
	}
}

// TestAllLogsHaveOneBound checks that all reads that hang share one time limit, and that other logs are packed.
func TestAllLogsHaveOneBound(t *testing.T) {
	var asked atomic.Int64
	c := clusterOf(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Query().Get("container") == "c001" {
			_, _ = io.WriteString(w, line(1))
			return
		}
		hang(w, r, "")
	})
	c.LogsTime = time.Second
	var containers []string
	for i := range 100 {
		containers = append(containers, fmt.Sprintf("c%03d", i))
	}
	files, wrong := logsOfAll(t, c, containers...)
	for _, container := range containers {
		switch why := wrong["logs/p."+container+".log"]; {
		case container == "c001":
			if why != "" || files["support-bundle/logs/p.c001.log"].Text != line(1) {
				t.Errorf("the log that comes is missing: %s", why)
			}
		case why != "the logs could not be read within 1s":
			t.Errorf("of %s is said %q", container, why)
		}
	}
	if n := asked.Load(); n > 2*logsAtOnce {
		t.Errorf("%d logs were asked for", n)
	}
}

// TestEventsWithoutEnd: reading ends if the list of events has no end, or if the server ignores the limit.
func TestEventsWithoutEnd(t *testing.T) {
	pages := 0
	for name, tc := range map[string]struct {
		next  func() string
		items int
		pages int
		says  string
	}{
		"the same page":       {func() string { return "more" }, 0, 2, "the same page"},
		"empty pages":         {func() string { return fmt.Sprint(pages) }, 0, maxPages, "more than 100 pages"},
		"one page with many":  {func() string { return "" }, readEvents + 1, 1, "more than 10000 events"},
		"full pages for ever": {func() string { return fmt.Sprint(pages) }, maxEvents, readEvents/maxEvents + 1, "more than 10000 events"},
	} {
		pages = 0
		c := clusterOf(t, func(w http.ResponseWriter, _ *http.Request) {
			pages++
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"kind":"EventList","apiVersion":"v1","metadata":{"continue":%q},"items":[%s]}`, tc.next(), strings.TrimSuffix(strings.Repeat(`{"reason":"x"},`, tc.items), ","))
		})
		found, err := c.events(t.Context())
		if _, cut := err.(cluster.Cut); !cut || !strings.Contains(err.Error(), tc.says) { //nolint:errorlint // the Cut is not wrapped
			t.Errorf("%s: it ends with %v", name, err)
		}
		if pages != tc.pages || len(found) != min(tc.items, maxEvents) {
			t.Errorf("%s: %d pages and %d events", name, pages, len(found))
		}
	}
}

// TestPodsWithoutEnd: at most maxPods Pods are used if the server ignores the limit.
func TestPodsWithoutEnd(t *testing.T) {
	c := clusterOf(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","items":[%s]}`, strings.TrimSuffix(strings.Repeat(`{"metadata":{"name":"p"}},`, 1000), ","))
	})
	pods, err := c.pods(t.Context())
	if len(pods) != maxPods || err == nil || err.Error() != "there are more than 50 Pods" {
		t.Errorf("there are %d Pods: %v", len(pods), err)
	}
}
