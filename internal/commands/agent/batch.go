package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// The values of Config.Batch.
const (
	BatchOn  = "on"
	BatchOff = "off"
)

const (
	// maxSingles is the number of concurrent requests that are sent alone. With fewer concurrent requests, a batch costs
	// more time than it saves.
	maxSingles = 4
	// batchWait is the longest time that a request waits before it is sent.
	batchWait = 10 * time.Millisecond
	// maxItems limits the number of items of a batch, because the key server counts uses of limited ACL entries one after
	// another.
	maxItems = 100
	// maxItemBytes is the longest body of a request that is sent in a batch.
	maxItemBytes = 16 << 10
	// maxBatchBytes limits the total length of the items of a batch. The key server handles longer bodies more slowly.
	maxBatchBytes = routes.SmallBody - len(batchBegin+batchEnd)
	// maxBatchResponse limits the length of the response to a batch, in bytes.
	maxBatchResponse = 4 << 20
	// batchPause is the time for which no batch is sent after the key server refused a batch.
	batchPause = time.Second
)

// The text around the items of a batch.
const (
	batchBegin = `{"items":[`
	batchEnd   = `]}`
)

// singleRoutes maps a batch route to the route of its items. A request body of the item route is one item of the batch,
// and the result of the item is a response of the item route.
var singleRoutes = map[string]string{"computeMacs": "computeMac", "verifyMacs": "verifyMac"}

// batcher sends requests of one route as a batch if they arrive while a batch, or maxSingles single requests, are in
// progress.
type batcher struct {
	route   routes.Route // the batch route
	forward forward
	clock   func() time.Time
	sizes   prometheus.Observer // number of items of each batch
	ctx     context.Context     //nolint:containedctx // parent of the contexts of all batches
	stop    context.CancelFunc  // cancels ctx
	running sync.WaitGroup

	mu       sync.Mutex
	singles  int // number of running requests that were sent alone
	batches  int // number of running batches
	waiting  []*batchItem
	bytes    int // total length of the waiting bodies
	overdue  *time.Timer
	resumeAt time.Time // time from which batches are allowed again
}

// forward has the type of the client's method Forward.
type forward func(context.Context, client.Forwarded, func(*http.Response, *client.Error) error) error

// batchItem is a request that waits for its result.
type batchItem struct {
	body      []byte
	result    chan *batchResult // receives the result; nil: send the request alone
	abandoned bool              // the workload no longer waits
	batch     *batch            // nil before it is sent
}

// batch is a batch that is in progress.
type batch struct {
	waiting int // number of items whose workload still waits
	cancel  context.CancelFunc
}

// batchResult is the response to an item, or an error if there was none.
type batchResult struct {
	header http.Header // of the response to the batch
	status int
	code   string // empty for success
	body   []byte
	err    error
}

// newBatchers returns the batchers by the route for one item.
func newBatchers(a *Agent) map[string]*batcher {
	batchers := map[string]*batcher{}
	for _, r := range routes.All() {
		if single := singleRoutes[r.Name]; single != "" {
			batchers[single] = newBatcher(r, a.client.Forward, a.cfg.Clock, a.metrics.batches)
		}
	}
	return batchers
}

func newBatcher(route routes.Route, forward forward, clock func() time.Time, sizes prometheus.Observer) *batcher {
	b := &batcher{route: route, forward: forward, clock: clock, sizes: sizes}
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b
}

// shutdown cancels all batches in progress and waits until they return.
func (b *batcher) shutdown() {
	b.mu.Lock()
	b.stop()
	b.mu.Unlock()
	b.running.Wait()
}

// do sends an item in a batch and returns its response. If the item is not sent in a batch, do calls sendAlone and
// returns the error of sendAlone and a nil result.
func (b *batcher) do(ctx context.Context, body []byte, sendAlone func() error) (*batchResult, error) {
	if item := b.enter(body); item != nil {
		select {
		case result := <-item.result:
			if result != nil {
				return result, result.err
			}
		case <-ctx.Done():
			b.abandon(item)
			return nil, ctx.Err()
		}
		b.mu.Lock()
		b.singles++
		b.mu.Unlock()
	}
	defer b.leave()
	return nil, sendAlone()
}

// enter returns an item that waits for a batch. It returns nil if the request must be sent alone; the caller must then
// call leave after the request.
func (b *batcher) enter(body []byte) *batchItem {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.paused() || b.batches == 0 && b.singles < maxSingles {
		b.singles++
		return nil
	}
	if len(b.waiting) == maxItems || b.bytes+len(body) > maxBatchBytes {
		b.flush()
	}
	item := &batchItem{body: body, result: make(chan *batchResult, 1)}
	b.waiting = append(b.waiting, item)
	b.bytes += len(body) + len(",")
	if len(b.waiting) == 1 {
		b.overdue = time.AfterFunc(batchWait, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.flush()
		})
	}
	return item
}

// leave ends a request that was sent alone. It sends the waiting requests, unless a batch is in progress.
func (b *batcher) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.singles--; b.batches == 0 {
		b.flush()
	}
}

// abandon records that the workload no longer waits for an item. If no workload waits for the batch any more, abandon
// cancels it.
func (b *batcher) abandon(item *batchItem) {
	b.mu.Lock()
	defer b.mu.Unlock()
	item.abandoned = true
	if item.batch == nil {
		return
	}
	if item.batch.waiting--; item.batch.waiting == 0 {
		item.batch.cancel()
	}
}

// paused reports whether batches are stopped, by shutdown or by pause. The caller must hold mu.
func (b *batcher) paused() bool { return b.ctx.Err() != nil || b.clock().Before(b.resumeAt) }

// flush sends the waiting items as a batch. If batches are paused, the waiting items are sent alone instead. The caller
// must hold mu.
func (b *batcher) flush() {
	items := slices.DeleteFunc(b.waiting, func(i *batchItem) bool { return i.abandoned })
	b.waiting, b.bytes = nil, 0
	if b.overdue != nil {
		b.overdue.Stop() // if the timer has already fired, the next items are only sent early
	}
	switch {
	case len(items) == 0:
		return
	case b.paused():
		for _, item := range items {
			item.result <- nil
		}
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, attemptsTime*(b.route.Timeout+answerTime))
	sent := &batch{waiting: len(items), cancel: cancel}
	for _, item := range items {
		item.batch = sent
	}
	b.batches++
	b.running.Go(func() {
		defer cancel()
		b.sizes.Observe(float64(len(items)))
		for i, result := range b.send(ctx, items) {
			items[i].result <- result
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.batches--
		b.flush()
	})
}

// send sends the items in one request and returns their results. A result is nil if the item must be sent alone.
func (b *batcher) send(ctx context.Context, items []*batchItem) []*batchResult {
	bodies := make([][]byte, len(items))
	for i, item := range items {
		bodies[i] = item.body
	}
	results := make([]*batchResult, len(items))
	forAll := func(r batchResult) {
		for i := range results {
			results[i] = &r
		}
	}
	err := b.forward(ctx, client.Forwarded{
		Route: b.route.Name, Method: b.route.Method, Target: b.route.Path, Counts: b.route.Counts,
		Body:    slices.Concat([]byte(batchBegin), bytes.Join(bodies, []byte(",")), []byte(batchEnd)),
		Timeout: b.route.Timeout + answerTime, MaxRetryAfter: patience,
	}, func(resp *http.Response, failure *client.Error) error {
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxBatchResponse))
		switch {
		case err == nil && failure == nil:
			err = split(results, resp.Header, body)
		case err == nil && sessionFailed(failure):
			return &sessionRefused{failure}
		case err == nil && refusedAll(resp, failure):
			b.pause()
		case err == nil: // the key server may have counted the uses
			forAll(batchResult{header: resp.Header, status: resp.StatusCode, code: failure.Code, body: body})
		}
		if err != nil {
			return &client.NetworkError{Sent: true, Err: err}
		}
		return nil
	})
	var network *client.NetworkError
	var noSession *client.LoginError
	if err != nil && errors.Is(err, ctx.Err()) && !errors.As(err, &network) && !errors.As(err, &noSession) {
		err = &client.NetworkError{Sent: true, Err: err}
	}
	if err != nil {
		forAll(batchResult{err: err})
	}
	return results
}

// refusedAll reports whether the key server refused the batch before it counted a use. A response of a proxy does not
// show this.
func refusedAll(resp *http.Response, failure *client.Error) bool {
	return resp.StatusCode < http.StatusInternalServerError && resp.StatusCode == routes.Status(fault.Code(failure.Code))
}

// pause stops batches for batchPause.
func (b *batcher) pause() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.resumeAt = b.clock().Add(batchPause)
}

// split sets the results of the items from the response to a batch. A result stays nil if the code of its item has the
// status 401, a status of 500 or higher, or no known status.
func split(results []*batchResult, header http.Header, response []byte) error {
	var list struct {
		Items []jsontext.Value `json:"items"`
	}
	if err := json.Unmarshal(response, &list); err != nil {
		return err
	}
	if len(list.Items) != len(results) {
		return fmt.Errorf("the key server returned %d results for %d items", len(list.Items), len(results))
	}
	for i, text := range list.Items {
		var failure struct {
			Code string `json:"code"`
		}
		if err := json.Unmarshal(text, &failure); err != nil {
			return err
		}
		status := http.StatusOK
		if failure.Code != "" {
			status = routes.Status(fault.Code(failure.Code))
		}
		if status < http.StatusOK || status >= http.StatusInternalServerError || status == http.StatusUnauthorized {
			continue
		}
		results[i] = &batchResult{header: header, status: status, code: failure.Code, body: append(text, '\n')}
	}
	return nil
}
