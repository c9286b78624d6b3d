package reconcile

import (
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
)

// patience is the number of writes in a row that may fail before an
// object counts as stalled. It is still retried, after growing pauses.
const patience = 6

// failures counts, for each object, the writes in a row that have failed. The
// count restarts when the object's spec changes or a reconcile is requested.
type failures struct {
	mu sync.Mutex
	by map[types.NamespacedName]failure
}

type failure struct {
	uid        types.UID
	generation int64
	token      string
	count      int
	retryAt    time.Time
	repairs    bool // a failed write was to repair an outside change
}

func newFailures() *failures { return &failures{by: map[types.NamespacedName]failure{}} }

func (f *failures) of(obj client.Object, token string) (count int, retryAt time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	have, ok := f.by[client.ObjectKeyFromObject(obj)]
	if !ok || !have.about(obj, token) {
		return 0, time.Time{}
	}
	return have.count, have.retryAt
}

// repairing reports whether a failed write was to repair an outside change.
func (f *failures) repairing(obj client.Object) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.by[client.ObjectKeyFromObject(obj)].repairs
}

// add counts one more failure and returns the pause before the retry.
func (f *failures) add(obj client.Object, token string, repairs bool, now time.Time, t connection.Timing) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := client.ObjectKeyFromObject(obj)
	have := f.by[key]
	if !have.about(obj, token) {
		have = failure{uid: obj.GetUID(), generation: obj.GetGeneration(), token: token}
	}
	pause := min(t.RetryMin<<min(have.count, 16), t.RetryMax)
	pause += rand.N(pause/10 + 1) //nolint:gosec // jitter, not a secret
	have.count++
	have.repairs = have.repairs || repairs
	have.retryAt = now.Add(pause)
	f.by[key] = have
	return pause
}

func (f *failures) exhausted(obj client.Object) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.by[client.ObjectKeyFromObject(obj)].count >= patience
}

func (f *failures) forget(key types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.by, key)
}

func (f failure) about(obj client.Object, token string) bool {
	return f.uid == obj.GetUID() && f.generation == obj.GetGeneration() && f.token == token
}
