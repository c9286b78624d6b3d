package sink

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestALearnedCeilingIsKept checks that a sink remembers the accepted batch size of a receiver that rejects larger
// batches, and rarely tries a larger one.
func TestALearnedCeilingIsKept(t *testing.T) {
	const most = 60 // events, including the seal
	w := newTrail(t, sqlstore.Config{Dir: t.TempDir()}, newSigner(t))
	w.write(t, 1000)
	receiver := newWeb(t)
	receiver.answer(func(out http.ResponseWriter, r *http.Request) {
		var events []json.RawMessage
		if err := json.NewDecoder(r.Body).Decode(&events); err != nil {
			t.Error(err)
		}
		if len(events) > most {
			out.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	})
	config := w.config(t)
	var ahead atomic.Int64
	config.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	r := New(config, target(t, receiver.url))
	r.batchLimit = 200 // 200 and 100 fail, 50 succeeds
	deliver := func(rows int64) {
		t.Helper()
		for upTo := r.sent + rows; r.sent < upTo; {
			if _, err := r.pass(t.Context()); err != nil {
				r.fail(err)
			}
		}
	}
	rig.Must(t, r.claim(t.Context(), time.Now()))
	deliver(600)
	if n := testutil.ToFloat64(r.meter.failures); n != 2 {
		t.Errorf("%v batches failed, want 2", n)
	}
	ahead.Store(int64(probeEvery))
	deliver(200)
	if n := testutil.ToFloat64(r.meter.failures); n != 3 {
		t.Errorf("%v batches failed with the probe, want 3", n)
	}
}

// TestACeilingIsGivenUp checks that the batches grow again if the receiver accepts larger batches again.
func TestACeilingIsGivenUp(t *testing.T) {
	w := newTrail(t, sqlstore.Config{Dir: t.TempDir()}, newSigner(t))
	r := New(w.config(t), Target{Name: "sink", scheme: "stdout"})
	now := time.Now()
	r.Clock = func() time.Time { return now }
	r.tried = 800
	r.shrink(errTooLarge)
	for range 5 {
		r.grow(r.batchLimit)
	}
	if r.batchLimit != 400 {
		t.Errorf("before the probe a batch has %d rows", r.batchLimit)
	}
	now = now.Add(probeEvery)
	for range 5 {
		r.grow(r.batchLimit)
	}
	if r.batchLimit != maxRows {
		t.Errorf("behind the probe a batch has %d rows", r.batchLimit)
	}
}
