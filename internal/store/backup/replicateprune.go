package backup

import (
	"context"
	"log/slog"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// prune removes generations whose last restore point is older than Keep, if a later generation
// with a base also has a restore point older than Keep.
func (r *Replicator) prune(ctx context.Context) {
	now := r.Maker.Clock()
	if r.Keep == 0 || now.Sub(r.pruned) < pruneEvery && !now.Before(r.pruned) {
		return
	}
	r.pruned = now
	current := r.current.name
	r.ended.Go(func() {
		if err := r.place.pruneReplicas(ctx, r.Maker.System, current, now.Add(-r.Keep), r.Logger); err != nil && ctx.Err() == nil {
			r.failures.Add(1)
			r.Logger.Error("replicas older than --replicate-keep cannot be removed", "error", err)
		}
	})
}

// extent describes the objects of a generation. It is derived from their names.
type extent struct {
	base        bool
	first, last time.Time
	number      int64
}

// extents returns the extents of the generations of a key server. It ignores empty objects.
func (p Place) extents(ctx context.Context, system keyserver.SystemID) (map[string]*extent, error) {
	all := map[string]*extent{}
	err := p.eachSegment(ctx, func(k keptSegment) error {
		if k.system != system || k.size == 0 {
			return nil
		}
		e := all[k.generation]
		if e == nil {
			e = &extent{last: k.begun}
			all[k.generation] = e
		}
		if k.number == 0 {
			e.base = true
			return nil
		}
		if e.first.IsZero() || k.until.Before(e.first) {
			e.first = k.until
		}
		if k.until.After(e.last) {
			e.last = k.until
		}
		e.number = max(e.number, k.number)
		return nil
	})
	return all, err
}

func (p Place) pruneReplicas(ctx context.Context, system keyserver.SystemID, current string, cutoff time.Time, log *slog.Logger) error {
	all, err := p.extents(ctx, system)
	if err != nil {
		return err
	}
	old := map[string]bool{}
	for name, e := range all {
		if name == current || !e.last.Before(cutoff) {
			continue
		}
		for other, o := range all {
			if other != name && o.base && !o.first.IsZero() && !o.first.After(cutoff) && o.last.After(e.last) {
				old[name] = true
			}
		}
	}
	if len(old) == 0 {
		return nil
	}
	// The base of a generation is removed first: a restore does not use segments without a base.
	err = p.eachSegment(ctx, func(k keptSegment) error {
		if !old[k.generation] {
			return nil
		}
		return p.Delete(ctx, k.object)
	})
	for name := range old {
		if err == nil {
			log.Info("replica removed", "generation", name)
		}
	}
	return err
}
