// Package rewrap replaces a data key: it wraps all values and makes all row MACs again with the next data key, while
// the key server runs. If a process stops, the next process continues with the values and MACs that still depend on the
// old data key.
package rewrap

import (
	"bytes"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

const (
	// batch is the number of keys that one transaction rewraps. Other writes wait some milliseconds for that
	// transaction.
	batch = 128
	// defaultShare is the share of time in which the worker works. In between it pauses, so that requests can run.
	defaultShare = 0.05
	// pollInterval is the interval of checks for remaining work. Another process may have stopped before its work was done.
	pollInterval = 5 * time.Second
	// afterRefusal is the time until rows with an invalid MAC are checked again.
	afterRefusal = time.Minute
)

// Config has the dependencies of a Worker.
type Config struct {
	Store   *sqlstore.Store
	Keyring *keyring.Keyring
	System  keyserver.SystemID
	Logger  *slog.Logger
	// Share is the share of one core's time that the worker uses. 0 means 0.05, 1 means no pauses.
	Share float64
}

// Worker rewraps the values that an old data key wraps.
type Worker struct {
	Config

	wake    chan struct{}
	refused atomic.Int64
}

// New returns a worker. The store informs it of new data keys.
func New(c Config) *Worker {
	if c.Share == 0 {
		c.Share = defaultShare
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	w := &Worker{Config: c, wake: make(chan struct{}, 1)}
	c.Store.OnChange(func(changes []keyserver.Change) {
		if keyserver.AnyWanted(changes, func(c keyserver.Change) bool { return c.Kind == keyserver.ChangeDataKey }) {
			w.poke()
		}
	})
	return w
}

func (w *Worker) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run works until ctx ends.
func (w *Worker) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-w.wake:
		}
		pause := pollInterval
		if err := w.once(ctx); err != nil && ctx.Err() == nil {
			w.Logger.Warn("rewrapping keys under the new data key was interrupted; it continues in a moment", "error", err)
		} else if w.refused.Load() > 0 {
			pause = afterRefusal
		}
		timer.Reset(pause)
	}
}

// once reads the data keys. If one of them is retiring, once rewraps all values and remakes all MACs of that key.
func (w *Worker) once(ctx context.Context) error {
	if _, err := w.Keyring.Reload(ctx); err != nil {
		return err
	}
	if err := w.Keyring.RewrapFromPrevious(ctx); err != nil {
		return err
	}
	if _, retiring := w.Keyring.Retiring(); !retiring {
		w.refused.Store(0)
		return nil
	}
	release, err := w.Store.ClaimRewrap(ctx)
	if err != nil || release == nil {
		return err
	}
	defer release()
	if _, err := w.Keyring.Reload(ctx); err != nil {
		return err
	}
	old, retiring := w.Keyring.Retiring()
	if !retiring {
		return nil
	}
	w.Logger.Info("rewrapping keys under a new data key", "retiring", old.Hex())
	refused := sqlstore.Refused{}
	err = w.all(ctx, old, refused)
	w.refused.Store(int64(len(refused)))
	switch {
	case err != nil:
		return err
	case len(refused) > 0:
		w.Logger.Error("a data key cannot be retired: rows do not match their MACs, and may need it; run doctor",
			"dataKey", old.Hex(), "rows", len(refused))
		return nil
	}
	return w.retire(ctx, old)
}

// all rewraps the wrapped values first, because it has to read all rows to find the MACs of the old data key.
func (w *Worker) all(ctx context.Context, old keyserver.ID, refused sqlstore.Refused) error {
	for _, p := range places {
		if err := w.place(ctx, p); err != nil {
			return err
		}
	}
	prefix := keyring.Prefix(old)
	for more := true; more; {
		err := w.paced(ctx, func() error {
			done, err := w.Store.RewrapKeys(ctx, prefix, batch, refused, func(id keyserver.ID, wrapped []byte) ([]byte, error) {
				out, _, err := w.Keyring.Rewrap(id, w.System, wrapped)
				return out, err
			})
			more = done > 0
			return err
		})
		if err != nil {
			return err
		}
	}
	var at sqlstore.RowCursor
	for more := true; more; {
		err := w.paced(ctx, func() (err error) {
			more, err = w.Store.RecomputeMACs(ctx, &at, refused)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *Worker) place(ctx context.Context, p place) error {
	return w.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		list, err := p.read(ctx, tx)
		if err != nil {
			return err
		}
		for _, one := range list {
			rewrapped, changed, err := w.Keyring.Rewrap(one.id, w.System, one.bytes)
			if err != nil {
				return err
			}
			if !changed {
				continue
			}
			if err := p.write(ctx, tx, wrapped{one.id, rewrapped}); err != nil {
				return err
			}
		}
		return nil
	})
}

// paced runs work, and then pauses. The pause is proportional to the duration of work.
func (w *Worker) paced(ctx context.Context, work func() error) error {
	began := time.Now()
	if err := work(); err != nil {
		return err
	}
	rest := time.Duration(float64(time.Since(began)) * (1/w.Share - 1))
	if rest <= 0 {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(rest):
		return nil
	}
}

// retire erases the old data key. In the same transaction it checks that nothing is wrapped under the key. No process
// writes at the same time, and later writes do not use the key.
func (w *Worker) retire(ctx context.Context, old keyserver.ID) error {
	left := int64(0)
	err := w.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		var err error
		if left, err = wrappedUnder(ctx, tx, old); err != nil || left > 0 {
			return err
		}
		return w.Keyring.Retire(ctx, old, tx.Setting, tx.PutSetting)
	})
	if err != nil {
		return err
	}
	if left > 0 {
		w.Logger.Warn("keys are still wrapped under a data key that is to be retired; they are rewrapped again", "dataKey", old.Hex(), "keys", left)
		w.poke()
		return nil
	}
	if _, err := w.Keyring.Reload(ctx); err != nil {
		return err
	}
	w.Logger.Info("nothing uses the data key any more; it is retired and erased", "dataKey", old.Hex())
	return nil
}

// counter has the methods that a store and a transaction have in common.
type counter interface {
	reader
	CountWrapped(ctx context.Context, prefix []byte) (int64, error)
}

func wrappedUnder(ctx context.Context, r counter, dataKey keyserver.ID) (int64, error) {
	prefix := keyring.Prefix(dataKey)
	n, err := r.CountWrapped(ctx, prefix)
	if err != nil {
		return 0, err
	}
	for _, p := range places {
		list, err := p.read(ctx, r)
		if err != nil {
			return 0, err
		}
		for _, one := range list {
			if bytes.HasPrefix(one.bytes, prefix) {
				n++
			}
		}
	}
	return n, nil
}

// Custody returns the state of the keyring and the progress of the rewrap.
func (w *Worker) Custody(ctx context.Context) (keyserver.Custody, error) {
	if _, err := w.Keyring.Reload(ctx); err != nil {
		return keyserver.Custody{}, err
	}
	out := keyserver.Custody{KEK: w.Keyring.KEK(ctx), DataKeys: w.Keyring.DataKeys(), Rewrap: keyserver.Rewrap{Refused: w.refused.Load()}}
	for i := range out.DataKeys {
		k := &out.DataKeys[i]
		if k.State == keyserver.DataKeyRetired {
			continue
		}
		var err error
		if k.Wrapped, err = wrappedUnder(ctx, w.Store, k.ID); err != nil {
			return keyserver.Custody{}, err
		}
		out.Rewrap.Total += k.Wrapped
		if k.State == keyserver.DataKeyActive {
			out.Rewrap.Done = k.Wrapped
		}
	}
	return out, nil
}

// Rotate creates a data key and starts to rewrap all values under it.
func (w *Worker) Rotate(ctx context.Context) (keyserver.DataKey, error) {
	made, err := w.Keyring.Rotate(ctx)
	if err == nil {
		w.poke()
	}
	return made, err
}
