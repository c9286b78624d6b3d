package tree

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/transparency-dev/formats/log"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Reader reads a tree and its rows from a database or a key server.
type Reader interface {
	// AuditTree returns the tree head, or a zero head if the tree has never been stored.
	AuditTree(ctx context.Context) (audit.TreeHead, error)
	// AuditTile reads the stored hashes of a tile.
	AuditTile(ctx context.Context, level int, index int64) ([]byte, error)
	// AuditRange reads at most limit rows with after < seq <= last, ordered by seq.
	AuditRange(ctx context.Context, after, last int64, limit int) ([]keyserver.AuditEntry, error)
}

// Noted is a checkpoint that was saved earlier outside the key server.
type Noted struct {
	Name string // for messages: the name of its file
	Head audit.TreeHead
}

// Options are the options of a verification.
type Options struct {
	Key   note.Verifier // nil: the key is unknown, so signatures are not verified
	Noted []Noted
	// First is the first row to verify. The rows before it were archived. Their leaves are read from the tiles, which the
	// root proves. 0 and 1 mean all rows.
	First int64
}

// Report is the result of a Verifier.
type Report struct {
	Head     audit.TreeHead // according to its checkpoint
	Signers  []string       // the names of the checkpoint's signers, unverified, if there is no key
	Newer    int64          // rows that were read, but are not in the tree yet
	Pruned   bool           // a row of the tree records that the rows before Options.First were removed
	Total    int            // number of findings
	Findings []audit.Finding
}

const maxFindings = 100

// Verifier compares rows, which it gets in order, with the signed tree. It keeps one tile of each level in memory,
// independent of the number of rows.
type Verifier struct {
	source Reader
	o      Options
	report Report

	rows      *growth // the tree that is computed from the rows
	stored    *growth // the tree that is computed from the leaves in the tiles; nil while it is equal to rows
	tile      []byte  // the tile of level 0 that contains the next leaf
	tileEmpty bool    // the tile has no hashes
	ended     bool    // a row and its hash are both missing, so later rows cannot be compared with the tree
	// Differences between rows and tiles. The root decides which of the two is wrong.
	differ      []int64 // the first rows that differ
	differences int
}

// NewVerifier reads the head of the tree.
func NewVerifier(ctx context.Context, source Reader, o Options) (*Verifier, error) {
	head, err := source.AuditTree(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the checkpoint of the audit tree: %w", err)
	}
	v := &Verifier{source: source, o: o, rows: &growth{}}
	v.checkpoint(head)
	return v, nil
}

// checkpoint checks that the stored checkpoint has the size and root of the stored tree.
func (v *Verifier) checkpoint(head audit.TreeHead) {
	if head.Size == 0 && len(head.Checkpoint) == 0 {
		if v.o.Key != nil {
			v.found(0, "missing: there is no checkpoint, so the key has signed nothing")
		}
		return
	}
	said, signers, err := Parse(head.Checkpoint)
	if err != nil {
		v.found(0, "changed: the newest checkpoint cannot be read: %v", err)
		said = head
	}
	v.report.Head, v.report.Signers = said, signers
	if err == nil && v.o.Key != nil {
		if _, err := Open(head.Checkpoint, v.o.Key); err != nil {
			v.found(0, "forged: %v", err)
		}
	}
	if said.Size != head.Size || said.Root != head.Root {
		v.found(0, "changed: the database says that the tree has %d rows, but its checkpoint has %d rows or another root", head.Size, said.Size)
	}
}

// Parse parses a checkpoint without verifying its signatures. It also returns the names
// in the signatures.
func Parse(checkpoint []byte) (audit.TreeHead, []string, error) {
	_, err := note.Open(checkpoint, note.VerifierList())
	var unverified *note.UnverifiedNoteError
	if !errors.As(err, &unverified) {
		return audit.TreeHead{}, nil, errors.New("it is not a C2SP signed-note")
	}
	var c log.Checkpoint
	if _, err := c.Unmarshal([]byte(unverified.Note.Text)); err != nil || c.Size > maxSize || len(c.Hash) != tlog.HashSize {
		return audit.TreeHead{}, nil, errors.New("it is not a C2SP tlog-checkpoint of a tree")
	}
	signers := make([]string, len(unverified.Note.UnverifiedSigs))
	for i, s := range unverified.Note.UnverifiedSigs {
		signers[i] = fmt.Sprintf("%s+%08x", s.Name, s.Hash)
	}
	return audit.TreeHead{Size: int64(c.Size), Root: tlog.Hash(c.Hash), Checkpoint: checkpoint}, signers, nil
}

// Read reads every row of the tree and passes it to Rows.
func (v *Verifier) Read(ctx context.Context) error {
	size := v.report.Head.Size
	for after := max(v.o.First-1, 0); after < size; {
		rows, err := v.source.AuditRange(ctx, after, size, readPage)
		if err != nil {
			return fmt.Errorf("read the audit rows after %d: %w", after, err)
		}
		if len(rows) == 0 {
			break
		}
		if err := v.Rows(ctx, rows); err != nil {
			return err
		}
		after = rows[len(rows)-1].Seq
	}
	return nil
}

// Tee returns a reader that also passes every row to Rows. Rows must be read in order.
func (v *Verifier) Tee(trail audit.Reader) audit.Reader { return teeReader{trail, v} }

type teeReader struct {
	audit.Reader
	v *Verifier
}

func (a teeReader) AuditRange(ctx context.Context, after, last int64, limit int) ([]keyserver.AuditEntry, error) {
	rows, err := a.Reader.AuditRange(ctx, after, last, limit)
	if err == nil {
		err = a.v.Rows(ctx, rows)
	}
	return rows, err
}

// Rows processes the rows that follow the rows of the last call.
func (v *Verifier) Rows(ctx context.Context, rows []keyserver.AuditEntry) error {
	var scratch []byte
	for i := range rows {
		if v.ended {
			return nil
		}
		seq := rows[i].Seq
		if seq > v.report.Head.Size {
			v.report.Newer++
			continue
		}
		if err := v.missing(ctx, seq-1); err != nil || v.ended {
			return err
		}
		if seq <= v.rows.size {
			v.found(seq, "inserted: the row exists already")
			continue
		}
		var leaf tlog.Hash
		leaf, scratch = audit.Leaf(scratch, &rows[i])
		if err := v.leaf(ctx, &leaf); err != nil {
			return err
		}
		v.report.Pruned = v.report.Pruned || v.prunes(&rows[i])
	}
	return nil
}

// prunes reports whether a row records that the rows before First were removed. Such a row names the last segment that
// was removed.
func (v *Verifier) prunes(row *keyserver.AuditEntry) bool {
	last := v.o.First - 1
	return row.Operation == keyserver.AuditPruned && row.Outcome == keyserver.Allowed && row.Kind == keyserver.InternalSession &&
		last > 0 && row.Object == audit.SegmentText(last)
}

// missing records that the rows up to last are missing.
func (v *Verifier) missing(ctx context.Context, last int64) error {
	from := max(v.rows.size+1, v.o.First)
	for v.rows.size < last && !v.ended {
		if err := v.leaf(ctx, nil); err != nil {
			return err
		}
	}
	switch {
	case v.ended:
		v.found(v.rows.size+1, "missing: the row and its hash are missing, but the checkpoint has %d rows; later rows were not compared with it", v.report.Head.Size)
	case from == last:
		v.found(from, "missing: the tree has the row")
	case from < last:
		v.found(from, "missing: the tree has the rows up to %d", last)
	}
	return nil
}

// leaf adds the hash of the next row; row is nil if the row is missing.
func (v *Verifier) leaf(ctx context.Context, row *tlog.Hash) error {
	seq := v.rows.size + 1
	at := (seq - 1) % tileWidth
	if at == 0 {
		if err := v.read(ctx, (seq-1)/tileWidth); err != nil {
			return err
		}
	}
	if v.ended = row == nil && v.tileEmpty; v.ended {
		return nil
	}
	var stored tlog.Hash
	copy(stored[:], v.tile[at*tlog.HashSize:])
	if row == nil {
		row = &stored
	}
	if *row != stored {
		v.differs(seq)
	}
	if err := v.rows.add(*row); err != nil {
		return err
	}
	if v.stored != nil {
		if err := v.stored.add(stored); err != nil {
			return err
		}
	}
	if err := v.compareFullTiles(ctx); err != nil {
		return err
	}
	return v.noted()
}

// read reads a tile of level 0. It sets missing hashes to zero, so that they differ from the hash of each row.
func (v *Verifier) read(ctx context.Context, index int64) error {
	data, err := v.source.AuditTile(ctx, 0, index)
	if err != nil {
		return fmt.Errorf("read tile %d of level 0 of the audit tree: %w", index, err)
	}
	v.tile, v.tileEmpty = make([]byte, tileSize), len(data) == 0
	copy(v.tile, data)
	if want := min(v.report.Head.Size-index*tileWidth, tileWidth) * tlog.HashSize; int64(len(data)) < want {
		v.found(index*tileWidth+1, "changed: tile %d of level 0 has %d of %d bytes", index, len(data), want)
	}
	return nil
}

// differs records a row that differs from its leaf in the tiles.
func (v *Verifier) differs(seq int64) {
	if v.stored == nil {
		v.stored = v.rows.clone()
	}
	v.differences++
	if len(v.differ) < maxFindings {
		v.differ = append(v.differ, seq)
	}
}

// compareFullTiles compares the computed tiles that have become full with the stored tiles.
func (v *Verifier) compareFullTiles(ctx context.Context) error {
	err := v.compare(ctx, v.rows.full, func(g *growth) []audit.Tile { return g.full })
	v.rows.full = v.rows.full[:0]
	if v.stored != nil {
		v.stored.full = v.stored.full[:0]
	}
	return err
}

// compare checks that each stored tile above level 0 follows from the stored tiles below it, or from the rows if these
// differ.
func (v *Verifier) compare(ctx context.Context, tiles []audit.Tile, of func(*growth) []audit.Tile) error {
	for i, t := range tiles {
		if t.Level == 0 || len(t.Hashes) == 0 {
			continue
		}
		data, err := v.source.AuditTile(ctx, t.Level, t.Index)
		if err != nil {
			return fmt.Errorf("read tile %d of level %d of the audit tree: %w", t.Index, t.Level, err)
		}
		data = data[:min(len(data), len(t.Hashes))]
		if !bytes.Equal(data, t.Hashes) && (v.stored == nil || !bytes.Equal(data, of(v.stored)[i].Hashes)) {
			v.found(t.Index<<(height*(t.Level+1))+1, "changed: tile %d of level %d does not follow from the tiles below it", t.Index, t.Level)
		}
	}
	return nil
}

// noted compares the root of the tree with the saved checkpoints of the same size.
func (v *Verifier) noted() error {
	for _, n := range v.o.Noted {
		if n.Head.Size != v.rows.size {
			continue
		}
		root, err := v.rows.rootOfOpenTiles()
		if err != nil {
			return err
		}
		if root != n.Head.Root {
			v.found(0, "changed: the rows 1 to %d do not match the checkpoint in %s; a row was changed, removed or inserted since", n.Head.Size, n.Name)
		}
	}
	return nil
}

// End returns the report. Call it after all rows.
func (v *Verifier) End(ctx context.Context) (Report, error) {
	head := v.report.Head
	if !v.ended {
		if err := v.missing(ctx, head.Size); err != nil {
			return Report{}, err
		}
	}
	for _, n := range v.o.Noted {
		if n.Head.Size > head.Size {
			v.found(head.Size+1, "removed: the checkpoint in %s has %d rows, but the tree has %d", n.Name, n.Head.Size, head.Size)
		}
	}
	if head.Size > 0 && !v.ended {
		if err := v.root(ctx); err != nil {
			return Report{}, err
		}
	}
	slices.SortStableFunc(v.report.Findings, func(a, b audit.Finding) int { return cmp.Compare(a.Seq, b.Seq) })
	return v.report, nil
}

// root compares the roots of the rows and of the tiles with the signed root.
func (v *Verifier) root(ctx context.Context) error {
	root, err := v.rows.rootOfOpenTiles()
	if err != nil {
		return err
	}
	stored := root
	if v.stored != nil {
		if stored, err = v.stored.rootOfOpenTiles(); err != nil {
			return err
		}
	}
	if err := v.compare(ctx, v.rows.open, func(g *growth) []audit.Tile { return g.open }); err != nil {
		return err
	}
	problem := "changed: the row does not match its hash in the tree"
	switch v.report.Head.Root {
	case stored:
	case root:
		problem = "changed: the tree has another hash for the row, but the checkpoint confirms the row"
	default:
		v.found(0, "changed: neither the rows nor the hashes of the tree lead to the root of the newest checkpoint")
	}
	for _, seq := range v.differ {
		v.found(seq, "%s", problem)
	}
	v.report.Total += v.differences - len(v.differ)
	return nil
}

func (v *Verifier) found(seq int64, format string, args ...any) {
	v.report.Total++
	if len(v.report.Findings) < maxFindings {
		v.report.Findings = append(v.report.Findings, audit.Finding{Seq: seq, Problem: fmt.Sprintf(format, args...)})
	}
}
