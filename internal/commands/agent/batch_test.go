package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
)

// callTime is the duration of each call to the key server, and longTime the duration of a slow call.
const (
	callTime = time.Millisecond
	longTime = time.Second
)

// batchWorld is a batcher with a key server and the requests of a workload.
type batchWorld struct {
	*batcher
	// result returns the result of an item; nil: its own body as a MAC.
	result func(key string) string
	// refuse returns a response to a batch, if its status is not 0.
	refuse  func() (status int, body string)
	failure error // instead of a response
	hangs   bool  // until the batch ends

	mu          sync.Mutex
	sentBatches [][]string // the keys of their items
	sentAlone   []string   // the keys of requests that were sent alone
}

func newBatchWorld() *batchWorld {
	w := &batchWorld{}
	route := routes.Route{Name: "computeMacs", Path: "/api/crypto/mac/batch", Timeout: longTime}
	w.batcher = newBatcher(route, w.respond, time.Now, prometheus.NewHistogram(prometheus.HistogramOpts{Name: "n"}))
	return w
}

// respond is the key server.
func (w *batchWorld) respond(ctx context.Context, f client.Forwarded, answer func(*http.Response, *client.Error) error) error {
	time.Sleep(callTime)
	if w.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	var list struct{ Items []struct{ Lineage string } }
	if err := json.Unmarshal(f.Body, &list); err != nil || len(f.Body) > 64<<10 || f.Target != "/api/crypto/mac/batch" {
		return fmt.Errorf("a batch of %d bytes to %s: %w", len(f.Body), f.Target, err)
	}
	var keys, results []string
	for _, item := range list.Items {
		keys = append(keys, item.Lineage)
		result := fmt.Sprintf(`{"mac":%q}`, item.Lineage)
		if w.result != nil {
			result = w.result(item.Lineage)
		}
		results = append(results, result)
	}
	w.mu.Lock()
	w.sentBatches = append(w.sentBatches, keys)
	w.mu.Unlock()
	if w.failure != nil {
		return w.failure
	}
	status, body := http.StatusOK, `{"items":[`+strings.Join(results, ",")+`]}`
	if w.refuse != nil {
		status, body = w.refuse()
	}
	resp := &http.Response{StatusCode: status, Header: http.Header{"X-Request-Id": {"the batch"}}, Body: io.NopCloser(strings.NewReader(body))}
	if status == http.StatusOK {
		return answer(resp, nil)
	}
	var e client.Error
	_ = json.Unmarshal([]byte(body), &e)
	e.Status = status
	return answer(resp, &e)
}

// ask sends a request like the handler, and returns the status and body of its response.
func (w *batchWorld) ask(ctx context.Context, key, body string, took time.Duration) string {
	result, err := w.do(ctx, []byte(body), func() error {
		w.mu.Lock()
		w.sentAlone = append(w.sentAlone, key)
		w.mu.Unlock()
		time.Sleep(took)
		return nil
	})
	switch {
	case err != nil:
		return err.Error()
	case result == nil:
		return "alone"
	}
	return fmt.Sprintf("%d %s %s", result.status, result.header.Get("X-Request-Id"), result.body)
}

func bodyOf(key string) string { return fmt.Sprintf(`{"lineage":%q,"data":""}`, key) }

// busy starts maxSingles requests and waits until they are in progress.
func (w *batchWorld) busy(t *testing.T, took time.Duration) {
	for range maxSingles {
		go w.ask(t.Context(), "busy", bodyOf("busy"), took)
	}
	synctest.Wait()
}

// together sends requests at once while others are in progress, and returns the responses.
func (w *batchWorld) together(t *testing.T, keys ...string) []string {
	w.busy(t, callTime)
	responses := make([]string, len(keys))
	var group sync.WaitGroup
	for i, key := range keys {
		group.Go(func() { responses[i] = w.ask(t.Context(), key, bodyOf(key), callTime) })
		synctest.Wait() // so that their order is known
	}
	group.Wait()
	return responses
}

// sent returns the batches and the requests that were sent alone, except those of busy, and forgets them.
func (w *batchWorld) sent() string {
	time.Sleep(longTime / 10)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sentAlone = slices.DeleteFunc(w.sentAlone, func(key string) bool { return key == "busy" })
	slices.Sort(w.sentAlone)
	text := fmt.Sprint(w.sentBatches, w.sentAlone)
	w.sentBatches, w.sentAlone = nil, nil
	return text
}

// TestBatch checks that requests that arrive while others are in progress are sent as one batch, and that each gets its own
// response.
func TestBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBatchWorld()
		if got := w.ask(t.Context(), "a", bodyOf("a"), 0); got != "alone" {
			t.Errorf("the only request: %s", got)
		}
		want := []string{`200 the batch {"mac":"b"}` + "\n", `200 the batch {"mac":"c"}` + "\n", `200 the batch {"mac":"d"}` + "\n"}
		if got := w.together(t, "b", "c", "d"); !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
		if got := w.sent(); got != "[[b c d]] [a]" {
			t.Errorf("the key server got %s", got)
		}
		if w.singles != 0 || w.batches != 0 || w.bytes != 0 {
			t.Errorf("%d requests and %d batches in progress, %d bytes wait", w.singles, w.batches, w.bytes)
		}
	})
}

// TestBatchWaitIsBounded checks that a slow request delays others only for batchWait.
func TestBatchWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBatchWorld()
		w.busy(t, longTime)
		for range 2 {
			start := time.Now()
			w.ask(t.Context(), "a", bodyOf("a"), 0)
			if took := time.Since(start); took != batchWait+callTime {
				t.Errorf("it took %s", took)
			}
			synctest.Wait() // until the batch has ended, because its end sends the next request at once
		}
		time.Sleep(longTime)
	})
}

// TestBatchResults checks the responses to the items of a batch. A request is sent alone if its item has a failure of the
// session or the key server.
func TestBatchResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBatchWorld()
		refused := map[string]string{
			"denied": "ACL_DENIED", "absent": "KEY_NOT_FOUND", "aes": "INVALID_ARGUMENT", "ended": "SESSION_EXPIRED", "odd": "UNKNOWN_CODE", "broken": "OP_FAILED",
		}
		w.result = func(key string) string {
			if code := refused[key]; code != "" {
				return fmt.Sprintf(`{"code":%q,"detail":"why <&>"}`, code)
			}
			return `{"mac":"m","added":1}`
		}
		got := w.together(t, "good", "denied", "absent", "aes", "ended", "odd", "broken")
		want := []string{
			`200 the batch {"mac":"m","added":1}` + "\n", `403 the batch {"code":"ACL_DENIED","detail":"why <&>"}` + "\n",
			`404 the batch {"code":"KEY_NOT_FOUND","detail":"why <&>"}` + "\n", `400 the batch {"code":"INVALID_ARGUMENT","detail":"why <&>"}` + "\n", "alone", "alone", "alone",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
	})
}

// TestBatchRefused checks that the requests of a refused batch are sent alone, and that there are no batches during the
// pause, also not for requests that were waiting.
func TestBatchRefused(t *testing.T) {
	for code, status := range map[string]int{"BAD_REQUEST": 400, "ACCESS_DENIED": 403, "NOT_FOUND": 404, "PAYLOAD_TOO_LARGE": 413} {
		synctest.Test(t, func(t *testing.T) {
			w := newBatchWorld()
			w.refuse = func() (int, string) {
				go w.ask(t.Context(), "waits", bodyOf("waits"), 0)
				synctest.Wait()
				return status, fmt.Sprintf(`{"code":%q}`, code)
			}
			if got := w.together(t, "a", "b"); !slices.Equal(got, []string{"alone", "alone"}) {
				t.Errorf("%s: got %q", code, got)
			}
			w.together(t, "c", "d")
			if got := w.sent(); got != "[[a b]] [a b c d waits]" {
				t.Errorf("%s: the key server got %s", code, got)
			}
			time.Sleep(batchPause)
			w.refuse = nil
			w.together(t, "e", "f")
			if got := w.sent(); got != "[[e f]] []" {
				t.Errorf("%s: later, the key server got %s", code, got)
			}
		})
	}
}

// TestBatchFailed checks that requests of a batch are not sent again if the key server may have performed them. Later
// requests are sent in batches.
func TestBatchFailed(t *testing.T) {
	for name, tc := range map[string]struct {
		refuse  func() (int, string)
		failure error
		want    string
	}{
		"Failed":       {func() (int, string) { return 500, `{"code":"OP_FAILED"}` }, nil, `500 the batch {"code":"OP_FAILED"}`},
		"TimedOut":     {func() (int, string) { return 504, `{"code":"REQUEST_TIMEOUT"}` }, nil, `504 the batch {"code":"REQUEST_TIMEOUT"}`},
		"Overloaded":   {func() (int, string) { return 503, `{"code":"OVERLOADED"}` }, nil, `503 the batch {"code":"OVERLOADED"}`},
		"OfAProxy":     {func() (int, string) { return 408, `<html>` }, nil, `408 the batch <html>`},
		"OtherStatus":  {func() (int, string) { return 400, `{"code":"ACCESS_DENIED"}` }, nil, `400 the batch {"code":"ACCESS_DENIED"}`},
		"Disconnected": {nil, &client.NetworkError{Sent: true, Err: errors.New("cut off")}, "cut off"},
		"NoSession":    {func() (int, string) { return 401, `{"code":"SESSION_NOT_FOUND","reauth":true}` }, nil, "SESSION_NOT_FOUND"},
		"TooFew":       {func() (int, string) { return 200, `{"items":[{"mac":"m"}]}` }, nil, "1 results for 2 items"},
		"NotJSON":      {func() (int, string) { return 200, `<html>` }, nil, "no response"},
		"NoObject":     {func() (int, string) { return 200, `{"items":[1,2]}` }, nil, "unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newBatchWorld()
				w.refuse, w.failure = tc.refuse, tc.failure
				for _, got := range w.together(t, "a", "b") {
					if !strings.Contains(got, tc.want) {
						t.Errorf("got %q", got)
					}
				}
				if got := w.sent(); got != "[[a b]] []" {
					t.Errorf("the key server got %s", got)
				}
				w.together(t, "c", "d")
				if got := w.sent(); got != "[[c d]] []" {
					t.Errorf("later, the key server got %s", got)
				}
			})
		})
	}
}

// TestBatchWithoutItsWorkload checks that a request is not sent if the workload has closed its connection, and that a
// batch is cancelled if all workloads have closed theirs.
func TestBatchWithoutItsWorkload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBatchWorld()
		w.busy(t, callTime)
		ctx, cancel := context.WithCancel(t.Context())
		go w.ask(ctx, "gone", bodyOf("gone"), 0)
		go w.ask(t.Context(), "here", bodyOf("here"), 0)
		synctest.Wait()
		cancel()
		if got := w.sent(); got != "[[here]] []" {
			t.Errorf("the key server got %s", got)
		}
		w.hangs = true
		w.busy(t, callTime)
		one, endOne := context.WithCancel(t.Context())
		two, endTwo := context.WithCancel(t.Context())
		go w.ask(one, "a", bodyOf("a"), 0)
		go w.ask(two, "b", bodyOf("b"), 0)
		time.Sleep(longTime)
		for want, end := range []context.CancelFunc{endTwo, endOne} {
			if w.batches != 1 {
				t.Errorf("%d workloads have closed their connection: %d batches", want, w.batches)
			}
			end()
			synctest.Wait()
		}
		if w.batches != 0 {
			t.Errorf("%d batches in progress", w.batches)
		}
	})
}

// TestBatchEnds checks that a batch ends after the time of its requests, and when the agent stops.
func TestBatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBatchWorld()
		w.hangs = true
		start := time.Now()
		for _, got := range w.together(t, "a", "b") {
			if !strings.Contains(got, "no response") {
				t.Errorf("got %q", got)
			}
		}
		if took := time.Since(start); took > attemptsTime*(longTime+answerTime)+batchWait+callTime {
			t.Errorf("it took %s", took)
		}
		w.busy(t, callTime)
		go w.ask(t.Context(), "c", bodyOf("c"), 0)
		time.Sleep(longTime)
		w.shutdown()
		if w.batches != 0 {
			t.Errorf("%d batches after the end", w.batches)
		}
		w.hangs = false
		w.together(t, "d", "e")
		if got := w.sent(); got != "[] [d e]" {
			t.Errorf("the key server got %s", got)
		}
	})
}

// TestBatchFits checks that no batch is larger than the key server allows.
func TestBatchFits(t *testing.T) {
	for _, tc := range []struct{ requests, key, batches int }{{250, 1, 3}, {70, maxItemBytes - len(bodyOf("")), 24}} {
		synctest.Test(t, func(t *testing.T) {
			w := newBatchWorld()
			for i, got := range w.together(t, slices.Repeat([]string{strings.Repeat("k", tc.key)}, tc.requests)...) {
				if !strings.HasPrefix(got, "200 ") {
					t.Errorf("request %d: got %s", i, got)
				}
			}
			items := 0
			for _, batch := range w.sentBatches {
				if items += len(batch); len(batch) > maxItems {
					t.Errorf("a batch of %d items", len(batch))
				}
			}
			if items != tc.requests || len(w.sentBatches) != tc.batches {
				t.Errorf("%d items in %d batches", items, len(w.sentBatches))
			}
		})
	}
}
