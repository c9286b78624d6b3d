package archive

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// ErrDamaged means that the archive differs from what this log wrote.
var ErrDamaged = errors.New("the audit archive is damaged or was changed")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// Manifest describes a segment. It is written after all other objects, so a segment without a manifest is incomplete.
type Manifest struct {
	Origin string `json:"origin"`
	First  int64  `json:"first"`
	Last   int64  `json:"last"`
	// Object contains the entry bundles (C2SP tlog-tiles) of the rows, concatenated and
	// compressed with zstd. Size and SHA256 are those of the object.
	Object string `json:"object"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// Checkpoint is the name of the object with the checkpoint that covers the segment.
	Checkpoint string `json:"checkpoint"`
	// Inclusion proves that the subtree of the rows is in the tree of the checkpoint (RFC 6962 2.1.1, the path of any of
	// the rows without its first 16 hashes). Consistency proves that the tree of the checkpoint continues the tree of all
	// rows up to Last (2.1.2).
	Inclusion   []tlog.Hash `json:"inclusion"`
	Consistency []tlog.Hash `json:"consistency"`
}

// Suffixes of the objects of a segment.
const (
	rowsSuffix       = ".rows.zst"
	checkpointSuffix = ".checkpoint"
	manifestSuffix   = ".json"
)

// firstOf returns the number of the first row from the name of a manifest, or 0 if the object is not a manifest.
func firstOf(object string) int64 {
	number, found := strings.CutSuffix(object, manifestSuffix)
	first, err := strconv.ParseInt(number, 10, 64)
	if !found || err != nil || first < 1 || audit.Segment(first) != number {
		return 0
	}
	return first
}

// manifest reads the manifest of a segment without verifying it. It returns nil if there is no manifest.
func (a *Archive) manifest(ctx context.Context, first int64) (*Manifest, error) {
	name := audit.Segment(first)
	content, err := a.get(ctx, name+manifestSuffix)
	if err != nil || content == nil {
		return nil, err
	}
	var m Manifest
	if err := json.Unmarshal(content, &m); err != nil {
		return nil, damaged("%s cannot be read: %s", name+manifestSuffix, err)
	}
	if m.First != first || m.Last != first+Rows-1 || m.Object != name+rowsSuffix || m.Checkpoint != name+checkpointSuffix {
		return nil, damaged("%s does not describe the rows %d to %d", name+manifestSuffix, first, first+Rows-1)
	}
	return &m, nil
}

// checkpoint reads and verifies the checkpoint that covers a segment. It returns nil if there is no checkpoint.
func (a *Archive) checkpoint(ctx context.Context, first int64, key note.Verifier) (*audit.TreeHead, error) {
	name := audit.Segment(first) + checkpointSuffix
	content, err := a.get(ctx, name)
	if err != nil || content == nil {
		return nil, err
	}
	head, err := tree.Open(content, key)
	if err != nil {
		return nil, damaged("%s: %s", name, err)
	}
	if head.Size < first+Rows-1 {
		return nil, damaged("%s covers %d rows only and does not cover the segment", name, head.Size)
	}
	return &head, nil
}

// read reads the rows of a segment in order and returns their subtree. It does not verify
// that they are rows of the log.
func (a *Archive) read(ctx context.Context, m *Manifest, row func(*keyserver.AuditEntry) error) (rows *subtree, err error) {
	object, size, err := a.object(ctx, m.Object)
	if err != nil {
		return nil, fmt.Errorf("read %s of the audit archive: %w", m.Object, err)
	}
	if object == nil {
		return nil, damaged("%s is missing", m.Object)
	}
	defer func() { err = errors.Join(err, object.Close()) }()
	sum := sha256.New()
	whole := io.TeeReader(io.LimitReader(object, m.Size+1), sum)
	rows = &subtree{}
	if size != m.Size {
		return rows, damaged("%s has %d bytes, but was written with %d", m.Object, size, m.Size)
	}
	if err := decode(whole, m, rows, row); err != nil {
		return rows, err
	}
	if _, err := io.Copy(io.Discard, whole); err != nil {
		return rows, fmt.Errorf("read %s of the audit archive: %w", m.Object, err)
	}
	if hex.EncodeToString(sum.Sum(nil)) != m.SHA256 {
		return rows, damaged("the SHA-256 of %s is not the one in its manifest", m.Object)
	}
	return rows, nil
}

// decode decodes the rows that encode wrote, and calls row for each.
func decode(from io.Reader, m *Manifest, rows *subtree, row func(*keyserver.AuditEntry) error) error {
	z, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(window), zstd.WithDecoderLowmem(true))
	if err != nil {
		return err
	}
	defer z.Close()
	plain := bufio.NewReaderSize(z, 1<<16)
	var buf []byte
	for seq := m.First; seq <= m.Last; seq++ {
		var length [2]byte
		if _, err := io.ReadFull(plain, length[:]); err != nil {
			return damaged("row %d cannot be read from %s: %s", seq, m.Object, err)
		}
		buf = append(buf[:0], make([]byte, binary.BigEndian.Uint16(length[:]))...)
		if _, err := io.ReadFull(plain, buf); err != nil {
			return damaged("row %d cannot be read from %s: %s", seq, m.Object, err)
		}
		e, err := audit.Decode(buf)
		if err != nil || e.Seq != seq {
			return damaged("row %d is damaged or in the wrong place in %s", seq, m.Object)
		}
		if err := rows.add(tlog.RecordHash(buf)); err != nil {
			return err
		}
		if err := row(&e); err != nil {
			return err
		}
	}
	if _, err := plain.ReadByte(); !errors.Is(err, io.EOF) {
		return damaged("%s has more than the rows %d to %d", m.Object, m.First, m.Last)
	}
	return nil
}

// window is the history size of the compression. A larger window does not compress such rows better.
const window = 1 << 20

// encode writes rows, one page at a time, and returns the subtree of their hashes.
func encode(to io.Writer, first int64, page func(after, last int64) ([]keyserver.AuditEntry, error)) (*subtree, error) {
	z, err := zstd.NewWriter(to, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window), zstd.WithEncoderCRC(true))
	if err != nil {
		return nil, err
	}
	rows := &subtree{}
	last := first + Rows - 1
	var leaf tlog.Hash
	var scratch []byte
	for after := first - 1; after < last; {
		entries, err := page(after, last)
		if err != nil {
			return nil, err
		}
		if len(entries) == 0 || entries[0].Seq != after+1 || entries[len(entries)-1].Seq != after+int64(len(entries)) {
			return nil, fmt.Errorf("%w: rows after row %d are missing", tree.ErrInconsistent, after)
		}
		for i := range entries {
			leaf, scratch = audit.Leaf(scratch, &entries[i])
			if err := rows.add(leaf); err != nil {
				return nil, err
			}
		}
		if _, err := z.Write(tree.Bundle(entries)); err != nil {
			return nil, err
		}
		after = entries[len(entries)-1].Seq
	}
	return rows, z.Close()
}

type measured struct {
	to   io.Writer
	size int64
	sum  hash.Hash
}

func (w *measured) Write(b []byte) (int, error) {
	n, err := w.to.Write(b)
	w.size += int64(n)
	w.sum.Write(b[:n])
	return n, err
}

// subtree is a tree in memory. Its hashes are numbered as in package tlog.
type subtree struct {
	hashes []tlog.Hash
	size   int64
}

func (t *subtree) add(leaf tlog.Hash) error {
	more, err := tlog.StoredHashesForRecordHash(t.size, leaf, t)
	t.hashes = append(t.hashes, more...)
	t.size++
	return err
}

func (t *subtree) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		if index < 0 || index >= int64(len(t.hashes)) {
			return nil, fmt.Errorf("a tree of %d rows has no hash %d", t.size, index)
		}
		out[i] = t.hashes[index]
	}
	return out, nil
}

// included verifies that the rows of a segment are in the tree of a checkpoint.
func (t *subtree) included(m *Manifest, head *audit.TreeHead) error {
	proof, err := tlog.ProveRecord(t.size, 0, t)
	if err != nil {
		return err
	}
	proof = append(proof, m.Inclusion...)
	if tlog.CheckRecord(proof, head.Size, head.Root, m.First-1, t.hashes[0]) != nil {
		return damaged("the rows %d to %d do not match the checkpoint of %d rows", m.First, m.Last, head.Size)
	}
	return nil
}
