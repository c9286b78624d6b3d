package backup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// due reports whether a new base must be made.
func (r *Replicator) due() bool {
	now := r.Maker.Clock()
	if r.current == nil {
		return r.tried.IsZero() || now.Sub(r.tried) >= r.waits || now.Before(r.tried)
	}
	age, longest := now.Sub(r.current.begun), maxGeneration
	if r.Keep > 0 {
		longest = min(longest, r.Keep)
	}
	return age >= longest || age < 0 || r.current.behind > max(maxBehindBase, maxBehindTimes*r.current.base)
}

// beginBase starts a goroutine that writes a base.
func (r *Replicator) beginBase(ctx context.Context) error {
	reader, err := ParseRecipient(r.Recipient)
	if err != nil {
		return err
	}
	r.tried = r.Maker.Clock()
	base, err := r.log.Base(ctx)
	if err != nil {
		return err
	}
	var id [4]byte
	_, _ = rand.Read(id[:]) // never fails
	made := &generation{name: generationName(r.Maker.System, r.tried, id), begun: r.tried, base: base.Size, at: base.At}
	ctx, cancel := context.WithTimeout(ctx, makeTime)
	r.making = &making{cancel: cancel, done: make(chan error, 1), made: made}
	m := r.making
	r.ended.Go(func() {
		defer cancel()
		head := r.head(ctx, made)
		m.done <- func() error {
			// Check that the destination responds before an audit row is written.
			if _, _, err := r.place.Get(ctx, head.name()); err != nil {
				return err
			}
			if err := r.Record(ctx, keyserver.Allowed, head.name()); err != nil {
				return err
			}
			_, err := r.place.Save(ctx, head.name(), func(to io.Writer) error {
				return pack(to, reader, r.tried, resting(ctx, r.Maker.Clock, r.Maker.Rest), func(w *writer) error {
					err := w.base(head, base.File)
					made.said = w.digest.Sum(nil)
					return err
				})
			})
			if err != nil {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
				defer cancel()
				err = errors.Join(fmt.Errorf("write the base: %w", err), r.Record(ctx, keyserver.Failed, head.name()))
			}
			return err
		}()
	})
	return nil
}

func (r *Replicator) head(ctx context.Context, g *generation) segment {
	kek := r.Maker.KEK(ctx)
	return segment{
		Format: format, MadeBy: r.Maker.Version, System: r.Maker.System, ServerName: r.Maker.ServerName, KEK: KEK{kek.Scheme, kek.Fingerprint},
		Generation: g.name, Number: g.number, To: g.at,
	}
}

func (r *Replicator) stopBase() {
	if r.making == nil {
		return
	}
	r.making.cancel()
	if err := <-r.making.done; err != nil {
		r.Logger.Debug("a base was abandoned", "error", err)
	}
	r.making = nil
}

// finish switches to the new base if it is complete.
func (r *Replicator) finish() error {
	if r.making == nil {
		return nil
	}
	select {
	case err := <-r.making.done:
		made := r.making.made
		r.making = nil
		if err != nil {
			return err
		}
		if !r.log.Intact() {
			return errors.New("the write-ahead log was checkpointed while a base was made; another base is made")
		}
		r.forget()
		r.current = made
		r.bases.Add(1)
		r.Logger.Info("the database is replicated on a new base", "name", made.name, "bytes", made.base, "took", r.Maker.Clock().Sub(made.begun).String())
	default:
	}
	return nil
}
