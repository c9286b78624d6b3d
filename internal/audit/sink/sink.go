// Package sink sends the rows of the audit log to receivers outside the key server. Each receiver gets each row at
// least once and in order, with the proof that no row is missing (ADR 46). Only rows that a signed checkpoint covers
// are sent. A receiver that is unreachable, slow or malicious delays only the rows of one sink.
package sink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
)

const (
	// sendTime is the time limit of one batch, from the first byte to the acknowledgement. holdTime is how long a claim of
	// a sink lasts if its process is killed.
	sendTime = 20 * time.Second
	holdTime = 30 * time.Second
	// lookEvery is the interval of checks for new rows. claimEvery is the interval in which a process tries to claim the
	// sink.
	lookEvery  = 250 * time.Millisecond
	claimEvery = 5 * time.Second
	// A failed delivery is retried after firstPause, and then after pauses that
	// double up to lastPause.
	firstPause = time.Second
	lastPause  = time.Minute
	storeTime  = 10 * time.Second
	// probeEvery is the pause before a batch larger than the ceiling is tried again.
	probeEvery = time.Hour
)

// Store is the part of a database that sinks use.
type Store interface {
	tree.Store
	// AuditExtent returns which rows are in the database and in the archive.
	AuditExtent(ctx context.Context) (audit.Extent, error)
	// ClaimAuditSink makes a holder the only process that delivers to a sink, for the duration lasts. It returns the
	// number of the last delivered row. held is false if another process has the sink. A new sink begins with the row
	// first.
	ClaimAuditSink(ctx context.Context, name string, holder []byte, first int64, now time.Time, lasts time.Duration) (sent int64, held bool, err error)
	MoveAuditSink(ctx context.Context, name string, holder []byte, from, to int64) (bool, error)
	ReleaseAuditSink(ctx context.Context, name string, holder []byte) error
}

// receiver is the connection to one receiver. Only one goroutine uses it.
type receiver interface {
	// send returns nil after the receiver has acknowledged the entire batch. Its errors contain no secrets and no text
	// from the receiver.
	send(ctx context.Context, b *batch) error
	close()
}

// Config is the configuration of the sinks of a process. All fields are required.
type Config struct {
	Store Store
	Key   note.Verifier // of the audit tree
	// Size returns the number of rows in the tree, as far as this process knows.
	Size func() int64
	// Holder distinguishes this process from processes that use the same database at the same time.
	Holder  []byte
	Source  Source
	Out     *Stdout
	Clock   func() time.Time
	Logger  *slog.Logger
	Metrics *Metrics
}

// Runner delivers rows to one receiver.
type Runner struct {
	Config
	target Target
	meter  meter

	open       receiver  // nil if there is none
	tried      int       // number of rows in the batch that is being sent; 0: none
	batchLimit int       // maximum number of rows in the next batch
	ceiling    int       // maximum number of rows that the receiver accepts, as far as known
	probe      time.Time // time after which a larger batch may be tried
	pause      time.Duration
	failing    bool

	held    bool
	claimed time.Time // when this process last tried to claim the sink
	sent    int64     // number of the last acknowledged row; valid while held
}

// New returns a runner for a target. Run delivers the rows.
func New(c Config, t Target) *Runner {
	return &Runner{Config: c, target: t, meter: c.Metrics.of(t.Label, c), batchLimit: maxRows, ceiling: maxRows}
}

// Run delivers rows until ctx ends.
func (r *Runner) Run(ctx context.Context) {
	defer r.end(context.WithoutCancel(ctx))
	for ctx.Err() == nil {
		wait := lookEvery
		more, err := r.pass(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			wait = r.fail(err)
		case more:
			wait = 0
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

func (r *Runner) end(ctx context.Context) {
	r.hangUp()
	if !r.held {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	if err := r.Store.ReleaseAuditSink(ctx, r.target.Name, r.Holder); err != nil {
		r.Logger.Warn("an audit sink could not be released; another process can use it after the claim expires", "sink", r.target.Label, "error", err)
	}
}

// pass delivers one batch if there are rows and this process has claimed the sink. It reports whether there are more
// rows.
func (r *Runner) pass(ctx context.Context) (more bool, err error) {
	r.tried = 0
	now := r.Clock()
	known := r.Size()
	if waits := now.Sub(r.claimed); waits >= 0 && waits < claimEvery && (!r.held || r.sent >= known) {
		return false, nil
	}
	if err := r.claim(ctx, now); err != nil || !r.held {
		return false, err
	}
	b, size, err := r.next(ctx)
	if err != nil || b == nil {
		return false, err
	}
	if err := r.deliver(ctx, b); err != nil {
		return false, err
	}
	if err := r.move(ctx, b.Last); err != nil || !r.held {
		return false, err
	}
	r.took(b)
	return r.sent < size, nil
}

// next returns the next batch, or nil if there are no new rows, and the size of the tree.
func (r *Runner) next(ctx context.Context) (*batch, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	head, err := r.Store.AuditTree(ctx)
	switch {
	case err != nil:
		return nil, 0, err
	case r.sent > head.Size || r.sent < 0:
		return nil, 0, fmt.Errorf("%w: the database says that the sink has the rows up to %d, but the tree has %d; delete the row of the sink in audit_sinks to deliver all rows in the database again", tree.ErrInconsistent, r.sent, head.Size)
	case head.Size == r.sent:
		return nil, head.Size, nil
	}
	b, err := r.collect(ctx, head)
	if err != nil {
		return nil, 0, err
	}
	r.meter.waits(b.rows[0].Time)
	return b, head.Size, nil
}

// move stores the number of the last acknowledged row. It does so even if ctx is cancelled.
func (r *Runner) move(ctx context.Context, to int64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	moved, err := r.Store.MoveAuditSink(ctx, r.target.Name, r.Holder, r.sent, to)
	if err != nil || !moved {
		// The next claim reads the stored number of the last delivered row. Rows after it are delivered again, by this or by
		// another process.
		r.Logger.Warn("rows that an audit sink has acknowledged may be delivered to it again", "sink", r.target.Label, "after", r.sent, "upTo", to)
		r.hold(0, false)
		return err
	}
	r.hold(to, true)
	return nil
}

func (r *Runner) hold(sent int64, held bool) {
	r.sent, r.held = sent, held
	r.meter.moved(sent, held)
}

func (r *Runner) claim(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	r.claimed = now
	extent, err := r.Store.AuditExtent(ctx)
	if err != nil {
		return err
	}
	sent, held, err := r.Store.ClaimAuditSink(ctx, r.target.Name, r.Holder, extent.First, now, holdTime)
	if err != nil {
		return err
	}
	r.hold(sent, held)
	return nil
}

func (r *Runner) deliver(ctx context.Context, b *batch) error {
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	r.tried = len(b.rows)
	if r.open == nil {
		var err error
		if r.open, err = r.target.open(r.Config); err != nil {
			return err
		}
	}
	return r.open.send(ctx, b)
}

func (r *Runner) hangUp() {
	if r.open != nil {
		r.open.close()
		r.open = nil
	}
}

// fail logs the first failure, closes the connection, and returns the pause before the next attempt. The next
// connection reads the files of certificates and headers again.
func (r *Runner) fail(err error) time.Duration {
	r.hangUp()
	r.meter.failures.Inc()
	r.shrink(err)
	if !r.failing {
		r.failing = true
		r.Logger.Error("an audit sink does not accept rows; they are delivered later", "sink", r.target.Label, "after", r.sent, "error", err)
	}
	r.pause = min(max(2*r.pause, firstPause), lastPause)
	return r.pause/2 + rand.N(r.pause/2) //nolint:gosec // so that processes do not retry at the same time
}

// shrink halves the size of the next batch. If the receiver rejected the batch as too large, or if the batch was larger
// than the ceiling, shrink also lowers the ceiling, so that later batches are smaller from the start.
func (r *Runner) shrink(err error) {
	if r.tried == 0 {
		return
	}
	if errors.Is(err, errTooLarge) || r.tried > r.ceiling {
		r.ceiling, r.probe = max(r.tried/2, 1), r.Clock().Add(probeEvery)
	}
	r.batchLimit = max(min(r.batchLimit, r.tried)/2, 1)
}

// grow doubles the size of the next batch, up to the ceiling. After the time r.probe, it allows a batch above the
// ceiling.
func (r *Runner) grow(took int) {
	r.ceiling = max(r.ceiling, took)
	most := r.ceiling
	if !r.Clock().Before(r.probe) {
		most *= 2
	}
	r.batchLimit = min(2*r.batchLimit, most, maxRows)
}

func (r *Runner) took(b *batch) {
	r.meter.sent.Add(float64(len(b.rows)))
	r.pause = 0
	r.grow(len(b.rows))
	if r.failing {
		r.failing = false
		r.Logger.Info("an audit sink accepts rows again", "sink", r.target.Label, "upTo", b.Last)
	}
}

// sanitizeError removes the receiver's text and the URL from an error.
func sanitizeError(err error) error {
	var outer *url.Error
	var record tls.RecordHeaderError
	var verify *tls.CertificateVerificationError
	var network *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return errSlow
	case errors.As(err, &record):
		return errors.New("it does not speak TLS")
	case errors.As(err, &verify):
		return errors.New("its certificate is not trusted, or not valid for its name")
	case errors.As(err, &network):
		return network
	case errors.As(err, &outer):
		return errors.New("it does not speak HTTP, or closes the connection")
	}
	return errors.New("it closes the connection")
}

var (
	errSlow     = errors.New("it has not acknowledged in time")
	errTooLarge = errors.New("the batch is too large for it")
)
