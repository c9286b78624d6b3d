// Package journal makes groups of bytes durable with one synchronous write each. The file has a fixed size, and its
// space is reused. The package does not interpret the bytes and uses no SQL. The caller calls Filled for groups that
// are stored elsewhere, which releases their space. After a crash, the caller reads all other groups from the journal.
//
// The file is a header and two segments. Each segment is filled from its beginning to its end. One filling of a segment
// is called a life. Life 1 is in the first segment, life 2 in the second, and life 3 overwrites life 1 in the first
// segment. The file consists of blocks of 512 bytes, which a disk writes completely or not at all. Each block contains
// its number, its life, its group, its part of the group, and a CRC that also covers the id of the file. Unused blocks
// have this header, too. After a crash, each block is either as before the last write or as after it. Any other block
// was damaged.
package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// File is the name of the journal file in its directory.
const File = "audit.journal"

const (
	// segmentSize is the size of a segment in bytes. It limits how many rows can be in the journal before they are in
	// the tables.
	segmentSize = 4 << 20
	segments    = 2
	fileMode    = 0o600
)

// ID distinguishes a journal from all other journals.
type ID [16]byte

// Position is the end of a group: a life, and the number of blocks in its segment up to that end.
type Position struct {
	Life  int64
	Block int64
}

// Start is the position of an empty journal.
var Start = Position{Life: 1}

func (p Position) before(q Position) bool {
	return p.Life < q.Life || p.Life == q.Life && p.Block < q.Block
}

// Errors of Append.
var (
	// ErrFull means that Append has no space until Filled releases some.
	ErrFull = errors.New("the journal is full")
	// ErrTooLarge means that the group does not fit into an empty journal.
	ErrTooLarge = errors.New("too large for the journal")
)

// Journal is a journal that one process writes. It is not safe for concurrent use.
type Journal struct {
	file   *os.File
	layout layout
	seed   uint32
	write  func(f *os.File, b []byte, at int64) error
	end    Position
	// The numbers of groups increase within a life. After a failed write, the group's number is not used again, so that
	// none of its blocks can be mistaken for a block of the next group.
	group        uint32 // the number of the last written group
	attempt      uint32 // the last number that was used
	failed       uint32 // number of failed writes
	lifeComplete bool   // a write to the next life was tried, so this life is complete
	filled       Position
	buffer       []byte
}

// Options override the defaults in tests.
type Options struct {
	SegmentBytes int64 // a multiple of 4096; default 4 MiB
	Write        func(f *os.File, b []byte, at int64) error
}

func (o Options) complete() Options {
	if o.SegmentBytes == 0 {
		o.SegmentBytes = segmentSize
	}
	if o.Write == nil {
		o.Write = writeDurably
	}
	return o
}

// Create creates an empty journal in a directory and replaces an existing one. It allocates and writes the entire file.
// So Append changes only its own blocks, and cannot fail because the disk is full.
func Create(dir string, id ID, o Options) (*Journal, error) {
	o = o.complete()
	l := layout{blocks: o.SegmentBytes / blockSize}
	name := filepath.Join(dir, File)
	f, err := os.OpenFile(name+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, fileMode)
	if err != nil {
		return nil, fmt.Errorf("create the audit journal: %w", err)
	}
	j := &Journal{file: f, layout: l, seed: seedOf(id), write: o.Write, end: Start, filled: Start}
	if err := j.fill(id); err != nil {
		return nil, errors.Join(fmt.Errorf("create the audit journal: %w", err), f.Close(), os.Remove(name+".new"))
	}
	err = os.Rename(name+".new", name)
	if err == nil {
		err = syncDirectory(dir)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create the audit journal: %w", err), f.Close())
	}
	return j, nil
}

func (j *Journal) fill(id ID) error {
	if err := j.file.Chmod(fileMode); err != nil {
		return err
	}
	if err := reserve(j.file, j.layout.size()); err != nil {
		return err
	}
	if _, err := j.file.WriteAt(fileHeader(id, j.layout), 0); err != nil {
		return err
	}
	const step = 1 << 11 // in blocks
	blank := make([]byte, 0, step*blockSize)
	for n := int64(0); n < segments*j.layout.blocks; n += step {
		blank = blank[:0]
		for i := n; i < min(n+step, segments*j.layout.blocks); i++ {
			blank = appendBlock(blank, block{number: i}, nil, j.seed)
		}
		if _, err := j.file.WriteAt(blank, headerSize+n*blockSize); err != nil {
			return err
		}
	}
	return j.file.Sync()
}

// Append makes a group durable and returns its end. If Append returns an error, the group may or may not exist after a
// crash. The next group overwrites the blocks of the failed group.
func (j *Journal) Append(group []byte) (Position, error) {
	parts := partsOf(len(group))
	if parts > min(j.layout.blocks, maxParts) {
		return Position{}, ErrTooLarge
	}
	at, number := j.end, j.attempt+1
	if j.lifeComplete || at.Block+parts > j.layout.blocks {
		// After a crash, reading begins at the position of Filled, so the life of that position must not be overwritten.
		if j.filled.Life < at.Life {
			return Position{}, ErrFull
		}
		at, number, j.lifeComplete = Position{Life: at.Life + 1}, j.failed+1, true
	}
	first := j.layout.first(at.Life) + at.Block
	j.buffer = appendGroup(j.buffer[:0], block{number: first, life: at.Life, group: number, parts: parts}, link{j.group, j.end.Block}, group, j.seed)
	if err := j.write(j.file, j.buffer, headerSize+first*blockSize); err != nil {
		j.failed++
		j.attempt++
		return Position{}, fmt.Errorf("write to the audit journal: %w", err)
	}
	j.end, j.group, j.attempt, j.lifeComplete = Position{at.Life, at.Block + parts}, number, number, false
	return j.end, nil
}

// Filled tells the journal that all groups up to a position, and the position itself, are durable in the database.
func (j *Journal) Filled(to Position) { j.filled = to }

// End returns the end of the last group.
func (j *Journal) End() Position { return j.end }

// Close closes the file. It does not delete it.
func (j *Journal) Close() error { return j.file.Close() }

// Remove deletes the journal of a directory. It succeeds if there is no journal or no directory. Call it only if the
// content of the journal is not needed any more.
func Remove(dir string) error {
	for _, name := range []string{File, File + ".new"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the audit journal: %w", err)
		}
	}
	if err := syncDirectory(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func syncDirectory(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func seedOf(id ID) uint32 { return crc32.Checksum(id[:], castagnoli) }

// layout computes the block numbers of a file.
type layout struct {
	blocks int64 // of a segment
}

func (l layout) size() int64 { return headerSize + segments*l.blocks*blockSize }

// first returns the number of the first block of a life.
func (l layout) first(life int64) int64 { return (life - 1) % segments * l.blocks }

const (
	blockSize = 512
	// headerSize is a page, so that each segment begins with a new page.
	headerSize  = 4096
	blockHeader = 24
	payloadSize = blockSize - blockHeader
	// groupHeader is the size of the header of a group: its length, the number of the previous group, and the end block of
	// the previous group.
	groupHeader = 12
	maxParts    = 1<<16 - 1
)

var magic = [8]byte{'K', 'S', 'J', 'O', 'U', 'R', 'N', '1'}

// fileHeader returns the header of the file: magic, id, blocks of a segment, CRC.
func fileHeader(id ID, l layout) []byte {
	b := make([]byte, 0, headerSize)
	b = append(b, magic[:]...)
	b = append(b, id[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(l.blocks)) //nolint:gosec // a segment is far below 2 TiB
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return b[:headerSize]
}

func partsOf(length int) int64 {
	return int64(groupHeader+length+payloadSize-1) / payloadSize
}

type block struct {
	number int64 // in the file
	life   int64 // 0: never used
	group  uint32
	part   int64
	parts  int64
}

// link identifies the previous group.
type link struct {
	group uint32 // its number
	block int64  // its end, in blocks of its segment
}

func appendGroup(b []byte, first block, behind link, group []byte, seed uint32) []byte {
	var head [payloadSize]byte
	binary.LittleEndian.PutUint32(head[:], uint32(len(group))) //nolint:gosec // bounded by maxParts
	binary.LittleEndian.PutUint32(head[4:], behind.group)
	binary.LittleEndian.PutUint32(head[8:], uint32(behind.block)) //nolint:gosec // as the blocks of a segment
	rest := group[copy(head[groupHeader:], group):]
	b = appendBlock(b, first, head[:min(payloadSize, groupHeader+len(group))], seed)
	for part := int64(1); part < first.parts; part++ {
		next := first
		next.number, next.part = first.number+part, part
		n := min(len(rest), payloadSize)
		b = appendBlock(b, next, rest[:n], seed)
		rest = rest[n:]
	}
	return b
}

var zeros [payloadSize]byte

func appendBlock(b []byte, k block, payload []byte, seed uint32) []byte {
	at := len(b)
	b = append(b, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(k.number)) //nolint:gosec // bounded by the file
	b = binary.LittleEndian.AppendUint64(b, uint64(k.life))   //nolint:gosec // never negative
	b = binary.LittleEndian.AppendUint32(b, k.group)
	b = binary.LittleEndian.AppendUint16(b, uint16(k.part))  //nolint:gosec // at most maxParts
	b = binary.LittleEndian.AppendUint16(b, uint16(k.parts)) //nolint:gosec // at most maxParts
	b = append(b, payload...)
	b = append(b, zeros[len(payload):]...)
	binary.LittleEndian.PutUint32(b[at:], crc32.Update(seed, castagnoli, b[at+4:]))
	return b
}

// parseBlock returns false if the CRC of a block is wrong.
func parseBlock(b []byte, seed uint32) (block, bool) {
	k := block{
		number: int64(binary.LittleEndian.Uint32(b[4:])),
		life:   int64(binary.LittleEndian.Uint64(b[8:])), //nolint:gosec // checked below
		group:  binary.LittleEndian.Uint32(b[16:]),
		part:   int64(binary.LittleEndian.Uint16(b[20:])),
		parts:  int64(binary.LittleEndian.Uint16(b[22:])),
	}
	return k, k.life >= 0 && crc32.Update(seed, castagnoli, b[4:]) == binary.LittleEndian.Uint32(b)
}
