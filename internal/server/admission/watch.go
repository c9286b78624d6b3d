package admission

import (
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// DefaultRetry is the default interval in which a Watch reads the manifest.
const DefaultRetry = 30 * time.Second

// soonest is the minimum pause between two checks. It prevents a busy loop just before the period of a manifest begins
// or ends.
const soonest = 100 * time.Millisecond

// WatchConfig configures a Watch.
type WatchConfig struct {
	Key      ed25519.PublicKey
	Manifest string // path of the envelope
	Digest   string // digest of the build
	Retry    time.Duration
	Clock    func() time.Time
	Logger   *slog.Logger
}

// Watch checks regularly whether a build may serve.
type Watch struct {
	cfg     WatchConfig
	verdict atomic.Pointer[verdict]
}

// verdict is the result of one check. It is immutable.
type verdict struct {
	refusal *Refusal // nil: the build may serve
	wait    time.Duration
	next    time.Time // time of the next check, if the clock is not set
}

// NewWatch returns a Watch and runs the first check. Run repeats the check.
func NewWatch(cfg WatchConfig) *Watch {
	w := &Watch{cfg: cfg}
	w.look()
	return w
}

// Run repeats the check until ctx ends: after each interval, and when the period of the manifest begins or ends.
func (w *Watch) Run(ctx context.Context) {
	for {
		timer := time.NewTimer(w.verdict.Load().wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			w.look()
		}
	}
}

// Refusal returns nil if the build may serve. Otherwise it returns a fault with the reason and the time until the next
// check. It uses the stored result and does not read the manifest.
func (w *Watch) Refusal() error {
	v := w.verdict.Load()
	if v.refusal == nil {
		return nil
	}
	return fault.Temporary(fault.BuildNotAdmitted, fault.ScopeProcess, max(time.Second, v.next.Sub(w.cfg.Clock())),
		"the key server does not admit this build: %s", v.refusal.Detail)
}

// look reads the manifest and stores the new verdict.
func (w *Watch) look() {
	now := w.cfg.Clock()
	m, err := w.read()
	wait := w.cfg.Retry
	if err == nil {
		err = m.Admits(w.cfg.Digest, now)
		if d, ok := m.changesIn(now); ok {
			wait = min(wait, max(d, soonest))
		}
	}
	v := &verdict{wait: wait, next: now.Add(wait)}
	if err != nil && !errors.As(err, &v.refusal) {
		v.refusal = refuse(Malformed, err, "the release manifest cannot be used") // fail closed
	}
	w.report(w.verdict.Swap(v), v)
}

func (w *Watch) read() (Manifest, error) {
	text, err := Read(w.cfg.Manifest)
	if err != nil {
		return Manifest{}, err
	}
	return Verify(w.cfg.Key, text)
}

// report logs a verdict if it differs from the previous one. So a refusal that does not change is logged once.
func (w *Watch) report(before, now *verdict) {
	switch {
	case now.refusal == nil && (before == nil || before.refusal != nil):
		w.cfg.Logger.Info("build admitted", "digest", w.cfg.Digest)
	case now.refusal != nil && (before == nil || before.refusal == nil || before.refusal.Error() != now.refusal.Error()):
		w.cfg.Logger.Warn("build not admitted", "digest", w.cfg.Digest, "cause", string(now.refusal.Cause),
			"detail", now.refusal.Error(), "next", now.next)
	}
}
