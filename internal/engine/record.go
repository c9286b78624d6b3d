package engine

import (
	"context"
	"strconv"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// changesPerPage is the maximum number of changes in one page of the change feed.
const changesPerPage = 1000

// Version implements keyserver.Records.
func (e *Engine) Version(ctx context.Context, by keyserver.Caller) (keyserver.Version, error) {
	if err := e.AuthorizeAndAudit(ctx, gate.Request{By: by, Op: keyserver.OpReadVersion}); err != nil {
		return keyserver.Version{}, err
	}
	return e.Build, nil
}

// Audit implements keyserver.Records.
func (e *Engine) Audit(ctx context.Context, by keyserver.Caller, filter keyserver.AuditFilter) (page keyserver.AuditPage, err error) {
	err = e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpReadAudit}, func() (err error) {
		page, err = e.Store.AuditRows(ctx, filter)
		return err
	})
	return page, err
}

// AuditTree provides proofs for the audit log; package tree implements it.
type AuditTree interface {
	Key() keyserver.AuditKey
	Checkpoint(ctx context.Context) ([]byte, error)
	Receipt(ctx context.Context, seq int64) ([]byte, error)
	Tile(ctx context.Context, level int, index int64, width int) ([]byte, error)
	Entries(ctx context.Context, index int64, width int) ([]byte, error)
}

// Witnessing cosigns checkpoints of other key servers; package witness implements it.
type Witnessing interface {
	AuditKeys() keyserver.AuditKeys
	Logs(ctx context.Context) ([]keyserver.WitnessedLog, error)
}

// Witness implements keyserver.Records.
func (e *Engine) Witness(ctx context.Context, by keyserver.Caller) (w keyserver.Witness, err error) {
	err = e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpReadAudit}, func() (err error) {
		w.Key = e.Witnessing.AuditKeys().Witness
		w.Logs, err = e.Witnessing.Logs(ctx)
		return err
	})
	return w, err
}

// AuditReceipt implements keyserver.Records.
func (e *Engine) AuditReceipt(ctx context.Context, by keyserver.Caller, seq int64) (receipt []byte, err error) {
	err = e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpReadAudit, Object: strconv.FormatInt(seq, 10)}, func() (err error) {
		receipt, err = e.AuditTree.Receipt(ctx, seq)
		return err
	})
	return receipt, err
}

// AuditCheckpoint implements keyserver.Records.
func (e *Engine) AuditCheckpoint(ctx context.Context) ([]byte, error) {
	return e.AuditTree.Checkpoint(ctx)
}

// AuditKey implements keyserver.Records.
func (e *Engine) AuditKey(context.Context) (keyserver.AuditKey, error) { return e.AuditTree.Key(), nil }

// AuditTile implements keyserver.Records.
func (e *Engine) AuditTile(ctx context.Context, by keyserver.Caller, t keyserver.AuditTile) (tile []byte, err error) {
	if !t.Entries {
		return e.AuditTree.Tile(ctx, t.Level, t.Index, t.Width)
	}
	err = e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpReadAudit, Object: t.Rows()}, func() (err error) {
		tile, err = e.AuditTree.Entries(ctx, t.Index, t.Width)
		return err
	})
	return tile, err
}

// Changes implements keyserver.Records. If there is no change yet, it waits for a commit of this process or, on
// PostgreSQL, of another replica.
func (e *Engine) Changes(ctx context.Context, by keyserver.Caller, f keyserver.ChangeFilter) (page keyserver.ChangePage, err error) {
	err = e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpWatchChanges}, func() error {
		deadline := time.NewTimer(f.Wait)
		defer deadline.Stop()
		for {
			woken := e.feed.wait()
			page, err = e.Store.Changes(ctx, f.After, changesPerPage)
			if err != nil || len(page.Changes) > 0 || page.Reset {
				return err
			}
			select {
			case <-woken:
			case <-deadline.C:
				return nil
			case <-ctx.Done():
				return nil // the client disconnected, which is no error of the feed
			}
		}
	})
	return page, err
}

// Ready implements keyserver.Records.
func (e *Engine) Ready(ctx context.Context) []keyserver.Readiness {
	return []keyserver.Readiness{
		Part("database", e.Store.Ping(ctx), "responds"),
		Part("currency", e.Store.Current(ctx), "this process has every change that is at least a second old"),
	}
}

// Part returns the readiness of one part. For a failure it shows the detail of the fault, never its cause, because the
// cause may name hosts or users.
func Part(name string, err error, fine string) keyserver.Readiness {
	if err == nil {
		return keyserver.Readiness{Part: name, Ready: true, Detail: fine}
	}
	r := keyserver.Readiness{Part: name, Detail: "does not respond", RetryIn: 1}
	if f := fault.As(err); f != nil {
		r.Detail = f.Detail
	}
	return r
}
