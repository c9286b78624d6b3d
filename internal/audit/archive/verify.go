package archive

import (
	"context"
	"errors"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

const maxChains = 4096

// Verified describes the verified part of the archive, up to the first error.
type Verified struct {
	Segments int
	Rows     int64          // from the first row of the log
	Newest   audit.TreeHead // of the checkpoint of the last segment
}

// Verify reads every segment and verifies three facts. The log that signs with key contains exactly these rows. No row
// is missing from the first row on. The rows match each checkpoint in noted that they cover. The error names the first
// wrong segment and, if known, the row.
func Verify(ctx context.Context, a *Archive, key note.Verifier, noted ...tree.Noted) (Verified, error) {
	v := verifier{archive: a, key: key, noted: noted, chains: map[int64]audit.Head{}}
	next := int64(1)
	err := a.each(ctx, func(first int64) error {
		if first != next {
			return damaged("the segment of rows %d to %d is missing", next, next+Rows-1)
		}
		if err := v.segment(ctx, first); err != nil {
			return err
		}
		next += Rows
		return nil
	})
	if err == nil && next == 1 {
		err = errors.New("the archive has no segment")
	}
	return v.done, err
}

type verifier struct {
	archive  *Archive
	key      note.Verifier
	noted    []tree.Noted
	segments subtree // the leaves are the roots of the segments
	chains   map[int64]audit.Head
	done     Verified
}

func (v *verifier) segment(ctx context.Context, first int64) error {
	m, err := v.archive.manifest(ctx, first)
	if err != nil {
		return err
	}
	head, err := v.archive.checkpoint(ctx, first, v.key)
	switch {
	case err != nil:
		return err
	case m == nil || head == nil:
		return damaged("the segment of rows %d to %d has no manifest or no checkpoint", first, first+Rows-1)
	case m.Origin != v.key.Name():
		return damaged("%s belongs to the log %q, but the key belongs to %q", audit.Segment(first)+manifestSuffix, m.Origin, v.key.Name())
	}
	rows, err := v.archive.read(ctx, m, v.row)
	if err != nil {
		return err
	}
	if err := rows.included(m, head); err != nil {
		return err
	}
	root, err := tlog.TreeHash(rows.size, rows)
	if err != nil {
		return err
	}
	if err := v.compareNoted(first, m.Last-1, &partial{&v.segments, rows, first}); err != nil {
		return err
	}
	if err := v.segments.add(root); err != nil {
		return err
	}
	if err := v.follows(m, head); err != nil {
		return err
	}
	if err := v.compareNoted(m.Last, m.Last, &partial{segments: &v.segments}); err != nil {
		return err
	}
	v.done.Segments++
	v.done.Rows, v.done.Newest = m.Last, *head
	return nil
}

// follows verifies that the tree of a checkpoint begins with all rows up to this segment. So all segments belong to the
// same history of the log.
func (v *verifier) follows(m *Manifest, head *audit.TreeHead) error {
	root, err := tlog.TreeHash(v.segments.size, &v.segments)
	if err != nil {
		return err
	}
	if tlog.CheckTree(m.Consistency, head.Size, head.Root, m.Last, root) != nil {
		return damaged("the checkpoint of the segment of rows %d to %d does not continue the segments before it", m.First, m.Last)
	}
	return nil
}

// compareNoted compares the rows with the saved checkpoints whose tree size is between from and to.
func (v *verifier) compareNoted(from, to int64, rows tlog.HashReader) error {
	for _, n := range v.noted {
		if n.Head.Size < from || n.Head.Size > to {
			continue
		}
		root, err := tlog.TreeHash(n.Head.Size, rows)
		if err != nil {
			return err
		}
		if root != n.Head.Root {
			return damaged("the first %d rows differ from those of the checkpoint in %s: the log has signed two histories", n.Head.Size, n.Name)
		}
	}
	return nil
}

// row checks the hash chains. The tree proves that the rows are correct, but only a chain can identify the wrong row.
func (v *verifier) row(e *keyserver.AuditEntry) error {
	last, known := v.chains[e.Chain]
	if !known && len(v.chains) >= maxChains {
		return damaged("row %d belongs to a further chain, but there are at most %d", e.Seq, maxChains)
	}
	if e.Position != last.Position+1 || e.Previous != last.Hash {
		return damaged("row %d does not continue position %d of chain %d: one of the two rows was changed", e.Seq, last.Position, e.Chain)
	}
	v.chains[e.Chain] = audit.Head{Chain: e.Chain, Position: e.Position, Hash: e.Hash}
	return nil
}

// partial reads the hashes of a tree that consists of complete segments and the rows of one more segment.
type partial struct {
	segments *subtree
	rows     *subtree
	first    int64
}

func (p *partial) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, 0, len(indexes))
	for _, index := range indexes {
		level, n := tlog.SplitStoredHashIndex(index)
		from := p.segments
		if level < segmentHeight {
			from, n = p.rows, n-(p.first-1)>>level
		} else {
			level -= segmentHeight
		}
		hash, err := from.ReadHashes([]int64{tlog.StoredHashIndex(level, n)})
		if err != nil {
			return nil, err
		}
		out = append(out, hash...)
	}
	return out, nil
}
