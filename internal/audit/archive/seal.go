package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Seal writes the segment that begins with the row first, and reads it back. It does not overwrite existing objects;
// they must contain the same rows.
func (a *Archive) Seal(ctx context.Context, store tree.Store, key note.Verifier, first int64) error {
	done, err := a.manifest(ctx, first)
	if err != nil {
		return err
	}
	if done == nil {
		if err := a.write(ctx, store, key, first); err != nil {
			return err
		}
	}
	_, err = a.Check(ctx, store, key, first)
	return err
}

// write writes the objects of a segment; the manifest is the last. If the process stops before it writes the manifest,
// the other objects remain. The next attempt uses these objects if they contain the same rows.
func (a *Archive) write(ctx context.Context, store tree.Store, key note.Verifier, first int64) error {
	m := &Manifest{Origin: key.Name(), First: first, Last: first + Rows - 1, Object: audit.Segment(first) + rowsSuffix, Checkpoint: audit.Segment(first) + checkpointSuffix}
	head, err := store.AuditTree(ctx)
	if err != nil {
		return err
	}
	if err := m.prove(ctx, store, head); err != nil {
		return err
	}
	if err := a.writeRows(ctx, store, m, &head); err != nil {
		return err
	}
	done, err := a.Put(ctx, m.Checkpoint, func(w io.Writer) error {
		_, err := w.Write(head.Checkpoint)
		return err
	})
	if err != nil {
		return err
	}
	if !done {
		there, err := a.checkpoint(ctx, first, key)
		if err != nil || there == nil {
			return fmt.Errorf("read %s again: %w", m.Checkpoint, err)
		}
		if there.Size > head.Size { // another replica wrote it with a newer checkpoint, or the checkpoint is not from this log
			if head, err = store.AuditTree(ctx); err != nil {
				return err
			}
		}
		if there.Size > head.Size {
			return damaged("%s covers %d rows, but the audit tree has %d", m.Checkpoint, there.Size, head.Size)
		}
		if err := m.prove(ctx, store, *there); err != nil {
			return err
		}
	}
	content, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	_, err = a.Put(ctx, audit.Segment(first)+manifestSuffix, func(w io.Writer) error {
		_, err := w.Write(append(content, '\n'))
		return err
	})
	return err
}

// prove sets the proofs of the manifest for a tree head.
func (m *Manifest) prove(ctx context.Context, store tree.Store, head audit.TreeHead) error {
	hashes := tree.Hashes(ctx, store)
	path, err := tlog.ProveRecord(head.Size, m.First-1, hashes)
	if err != nil {
		return err
	}
	m.Inclusion = path[segmentHeight:]
	m.Consistency, err = tlog.ProveTree(head.Size, m.Last, hashes)
	return err
}

// writeRows writes the rows as an object. It fails if their hashes differ from those in the tree. It sets the fields of
// the manifest that describe the object.
func (a *Archive) writeRows(ctx context.Context, store tree.Store, m *Manifest, head *audit.TreeHead) error {
	out := &measured{sum: sha256.New()}
	fill := func(to io.Writer) error {
		out.to = to
		rows, err := encode(out, m.First, func(after, last int64) ([]keyserver.AuditEntry, error) {
			return store.AuditRange(ctx, after, last, readPage)
		})
		if err != nil {
			return err
		}
		if rows.included(m, head) != nil {
			return fmt.Errorf("%w: rows %d to %d differ from the rows that were written", tree.ErrInconsistent, m.First, m.Last)
		}
		return nil
	}
	done, err := a.Put(ctx, m.Object, fill)
	if err != nil {
		return err
	}
	if done {
		m.Size, m.SHA256 = out.size, hex.EncodeToString(out.sum.Sum(nil))
		return nil
	}
	return a.adopt(ctx, m)
}

// adopt uses an existing object, for example of an attempt that stopped before it wrote the manifest. Check verifies
// the rows of the object later.
func (a *Archive) adopt(ctx context.Context, m *Manifest) error {
	r, _, err := a.object(ctx, m.Object)
	if err == nil && r == nil {
		err = damaged("%s is missing", m.Object)
	}
	if err != nil {
		return err
	}
	sum := sha256.New()
	m.Size, err = io.Copy(sum, r)
	m.SHA256 = hex.EncodeToString(sum.Sum(nil))
	if err := errors.Join(err, r.Close()); err != nil {
		return err
	}
	_, err = a.read(ctx, m, func(*keyserver.AuditEntry) error { return nil })
	return err
}

// Check reads a segment back and verifies its proofs. It also verifies that its rows are the rows of the tree in the
// database. It returns the heads of the chains at the end of the segment.
func (a *Archive) Check(ctx context.Context, store tree.Store, key note.Verifier, first int64) ([]audit.Head, error) {
	m, err := a.manifest(ctx, first)
	if err != nil {
		return nil, err
	}
	there, err := a.checkpoint(ctx, first, key)
	if err != nil {
		return nil, err
	}
	if m == nil || there == nil {
		return nil, damaged("the segment of rows %d to %d is not in the archive", first, first+Rows-1)
	}
	if m.Origin != key.Name() {
		return nil, damaged("the segment of rows %d to %d belongs to the log %q", m.First, m.Last, m.Origin)
	}
	last := map[int64]audit.Head{}
	rows, err := a.read(ctx, m, func(e *keyserver.AuditEntry) error {
		last[e.Chain] = audit.Head{Chain: e.Chain, Position: e.Position, Hash: e.Hash}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := rows.included(m, there); err != nil {
		return nil, err
	}
	head, err := store.AuditTree(ctx)
	if err != nil {
		return nil, err
	}
	ours := *m
	if err := ours.prove(ctx, store, head); err != nil {
		return nil, err
	}
	if rows.included(&ours, &head) != nil {
		return nil, damaged("the rows %d to %d of the segment differ from those in the database", m.First, m.Last)
	}
	heads := make([]audit.Head, 0, len(last))
	for _, h := range last {
		heads = append(heads, h)
	}
	return heads, nil
}
