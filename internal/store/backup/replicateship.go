package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// ship writes new commits to the object store.
func (r *Replicator) ship(ctx context.Context) error {
	if r.pending != nil { // retry: the result of an earlier attempt may be unknown
		if err := r.write(ctx); err != nil {
			return err
		}
	}
	c, err := r.log.Read(ctx, r.current.at)
	if err != nil {
		return err
	}
	r.pending = &c
	return r.write(ctx)
}

// fold copies the log into the database file, and ships the last commits in the log.
func (r *Replicator) fold(ctx context.Context) error {
	c, done, err := r.log.Fold(ctx, r.current.at)
	if !done {
		return err
	}
	r.folds++
	r.pending = &c
	return errors.Join(err, r.write(ctx))
}

// write writes the pending commits as a segment. It can be repeated until it succeeds, because the name
// and content of the segment are the same each time.
func (r *Replicator) write(ctx context.Context) error {
	c, g := r.pending, r.current
	rows := g.rows
	if n := len(c.Rows); n > 0 {
		rows = max(rows, c.Rows[n-1].Seq)
	}
	if g.number > 0 && c.To.Frames == c.From.Frames && rows == g.rows { // no new commits or audit rows
		g.at = c.To
		r.written(c.Until)
		return nil
	}
	reader, err := ParseRecipient(r.Recipient)
	if err != nil {
		return err
	}
	head := r.head(ctx, g)
	head.Number, head.Previous, head.From, head.To, head.Header = g.number+1, g.said, c.From, c.To, c.Header.Raw
	// The clock may have been set back, but the times in names must not decrease.
	head.Until = c.Until.UTC().Truncate(time.Millisecond)
	if head.Until.Before(g.until) {
		head.Until = g.until
	}
	ctx, cancel := context.WithTimeout(ctx, shipTime)
	defer cancel()
	r.ended.Go(func() { r.guard(ctx, cancel) })
	var said []byte
	var size counter
	_, err = r.place.Put(ctx, head.name(), func(to io.Writer) error {
		size = counter{to: to}
		return pack(&size, reader, head.Until, func() error { return ctx.Err() }, func(w *writer) error {
			err := w.segment(head, *c)
			said = w.digest.Sum(nil)
			return err
		})
	})
	if err == nil && said == nil { // the object exists, from an attempt whose result was lost
		size = counter{to: io.Discard}
		err = pack(&size, reader, head.Until, func() error { return ctx.Err() }, func(w *writer) error {
			err := w.segment(head, *c)
			said = w.digest.Sum(nil)
			return err
		})
		if err == nil {
			err = r.isOurs(ctx, head.name(), size.n)
		}
	}
	if err != nil {
		return fmt.Errorf("write the segment %s: %w", head.name(), err)
	}
	g.number, g.said, g.at, g.rows, g.until = head.Number, said, c.To, rows, head.Until
	g.behind += (c.To.Frames - c.From.Frames) * c.Header.Page
	r.shipped.Add(size.n)
	r.written(c.Until)
	return nil
}

// isOurs returns an error if a stored segment has another size than expected. A new base is then needed.
// This process cannot decrypt the stored segment to compare the content.
func (r *Replicator) isOurs(ctx context.Context, name string, size int64) error {
	from, is, err := r.place.Get(ctx, name)
	if err != nil || from == nil {
		return err // the next pass tries again
	}
	if err := from.Close(); err != nil {
		return err
	}
	if is == size {
		return nil
	}
	r.forget()
	return fmt.Errorf("another process has written it, with %d bytes instead of %d: a new base is made; make sure that only this key server writes there", is, size)
}

// written records the time up to which all changes are replicated.
func (r *Replicator) written(until time.Time) {
	r.until.Store(until.UnixMicro())
	r.drop()
}

// guard cancels the write of a segment if the log grows too large during the write.
func (r *Replicator) guard(ctx context.Context, cancel context.CancelFunc) {
	look := time.NewTicker(shipEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			if size, err := r.log.Size(); err == nil && size > r.MaxLogBytes {
				cancel()
				return
			}
		}
	}
}
