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

// Errors of reading a journal. They are wrapped in a sentence with the file and the problem.
var (
	// ErrMissing means that there is no journal.
	ErrMissing = errors.New("no journal")
	// ErrOther means that the journal belongs to another database, or to an earlier or later state of this database.
	ErrOther = errors.New("another journal")
	// ErrDamaged means that blocks were changed, or are missing, after they were written.
	ErrDamaged = errors.New("damaged journal")
)

// refusal is an error that wraps one of the errors above. Its text is only the sentence, without the text of that
// error.
type refusal struct {
	sentence string
	kind     error
}

func (r *refusal) Error() string { return r.sentence }
func (r *refusal) Unwrap() error { return r.kind }

// Group is a group of bytes that one Append call wrote.
type Group struct {
	Bytes []byte
	End   Position
}

// Content is the content of a journal file, read into memory.
type Content struct {
	ID     ID
	path   string
	layout layout
	raw    []byte // the segments
	seed   uint32
}

// Groups returns the groups after the position from. It fails if the journal has another id. A crash may have cut off
// the last group. Append did not confirm this group, so Groups omits it. Any other difference from the written bytes is
// an error.
func (c *Content) Groups(id ID, from Position) ([]Group, error) {
	if c.ID != id {
		return nil, c.refuse(ErrOther, "belongs to another database")
	}
	return c.groups(from)
}

func (c *Content) refuse(kind error, format string, args ...any) error {
	return &refusal{"the audit journal " + c.path + " " + fmt.Sprintf(format, args...), kind}
}

func (c *Content) damaged(number int64, what string) error {
	return c.refuse(ErrDamaged, "is damaged at byte %d: %s", headerSize+number*blockSize, what)
}

// maxFile is the maximum accepted size of a journal file in bytes, far more than any journal has.
const maxFile = 2 << 30

// Load reads the journal in a directory.
func Load(dir string) (*Content, error) {
	c := &Content{path: filepath.Join(dir, File)}
	info, err := os.Lstat(c.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, c.refuse(ErrMissing, "is missing")
	case err != nil:
		return nil, fmt.Errorf("read the audit journal: %w", err)
	case !info.Mode().IsRegular() || info.Size() > maxFile:
		return nil, c.refuse(ErrOther, "was not created by this program")
	}
	f, err := os.OpenFile(c.path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read the audit journal: %w", err)
	}
	defer f.Close() //nolint:errcheck // opened only for reading
	all := make([]byte, info.Size())
	if n, err := f.ReadAt(all, 0); err != nil {
		return nil, fmt.Errorf("read the audit journal after byte %d: %w", n, err)
	}
	const used = len(magic) + len(c.ID) + 4
	if len(all) < headerSize || [8]byte(all[:8]) != magic ||
		crc32.Checksum(all[:used], castagnoli) != binary.LittleEndian.Uint32(all[used:]) {
		return nil, c.refuse(ErrDamaged, "is damaged at byte 0: the header is invalid")
	}
	c.ID = ID(all[len(magic):])
	c.seed = seedOf(c.ID)
	c.layout.blocks = int64(binary.LittleEndian.Uint32(all[used-4:]))
	if want := c.layout.size(); int64(len(all)) != want {
		return nil, c.refuse(ErrDamaged, "is damaged: it has %d bytes, but was created with %d", len(all), want)
	}
	c.raw = all[headerSize:]
	return c, nil
}

// The method at returns the header of a block, or an error if the block is damaged or in the wrong place.
func (c *Content) at(number int64) (block, error) {
	k, ok := parseBlock(c.raw[number*blockSize:][:blockSize], c.seed)
	switch {
	case !ok:
		return k, c.damaged(number, "the bytes were changed after they were written")
	case k.number != number:
		return k, c.damaged(number, fmt.Sprintf("the block belongs to byte %d", headerSize+k.number*blockSize))
	case k.life > 0 && c.layout.first(k.life) != number/c.layout.blocks*c.layout.blocks:
		return k, c.damaged(number, "the block belongs to the other segment")
	}
	return k, nil
}

func (c *Content) groups(from Position) ([]Group, error) {
	for number := range segments * c.layout.blocks { // damage is reported instead of any other problem
		if _, err := c.at(number); err != nil {
			return nil, err
		}
	}
	last, err := c.groupAt(from)
	if err != nil {
		return nil, err
	}
	var all []Group
	at := cursor{end: from, begin: from, group: last}
	for {
		group, next, behind, whole := c.group(at, at.end)
		if whole && behind != (link{at.group, at.end.Block}) {
			return nil, c.damaged(c.layout.first(at.begin.Life)+at.begin.Block, "the group of rows that was written there is missing")
		}
		if whole {
			all, at = append(all, Group{group, next.end}), next
			continue
		}
		group, next, behind, whole = c.group(cursor{}, Position{Life: at.end.Life + 1})
		if !whole {
			return all, c.checkTail(at)
		}
		// If the next life (filling of a segment) does not refer to the last group, the write of that group failed.
		if n := len(all); n > 0 && at.group != behind.group {
			all, at = all[:n-1], at.before()
		}
		if behind != (link{at.group, at.end.Block}) {
			return nil, c.damaged(c.layout.first(at.end.Life)+at.end.Block, "the group of rows that was written there is missing")
		}
		all, at = append(all, Group{group, next.end}), next
	}
}

// cursor is the state of reading groups: the position and number of the last group that was read, and the number of the
// group before it.
type cursor struct {
	begin, end    Position
	group         uint32
	previousGroup uint32
}

// before returns the cursor without the last group.
func (c cursor) before() cursor { return cursor{begin: c.begin, end: c.begin, group: c.previousGroup} }

// groupAt returns the number of the group that ends at a position. It fails if no group ended at this position, or if
// that group was overwritten.
func (c *Content) groupAt(from Position) (uint32, error) {
	if from.Life < 1 || from.Block < 0 || from.Block > c.layout.blocks || from.Block == 0 && from != Start {
		return 0, c.refuse(ErrOther, "does not match the database: the database names a position that no journal has")
	}
	k, _ := c.at(c.layout.first(from.Life) + max(from.Block-1, 0))
	switch {
	case k.life > from.Life:
		return 0, c.refuse(ErrOther, "is newer than the database")
	case from == Start:
		return 0, nil
	case k.life < from.Life || k.part != k.parts-1:
		return 0, c.refuse(ErrOther, "is older than the database")
	}
	return k.group, nil
}

// group reads the group at a position. behind is the last group of the same life, or zero. The result whole is false if
// the group is incomplete.
func (c *Content) group(behind cursor, at Position) (group []byte, next cursor, before link, whole bool) {
	if at.Block >= c.layout.blocks {
		return nil, cursor{}, link{}, false
	}
	first := c.layout.first(at.Life) + at.Block
	k, _ := c.at(first)
	want := block{number: first, life: at.Life, group: k.group, parts: k.parts}
	if k != want || k.group <= behind.group || k.parts < 1 || at.Block+k.parts > c.layout.blocks {
		return nil, cursor{}, link{}, false
	}
	raw := make([]byte, 0, k.parts*payloadSize)
	for part := range k.parts {
		want.number, want.part = first+part, part
		if k, _ := c.at(first + part); k != want {
			return nil, cursor{}, link{}, false
		}
		raw = append(raw, c.raw[(first+part)*blockSize+blockHeader:][:payloadSize]...)
	}
	length := int64(binary.LittleEndian.Uint32(raw))
	if length > maxFile || partsOf(int(length)) != k.parts {
		return nil, cursor{}, link{}, false
	}
	before = link{binary.LittleEndian.Uint32(raw[4:]), int64(binary.LittleEndian.Uint32(raw[8:]))}
	next = cursor{begin: at, end: Position{at.Life, at.Block + k.parts}, group: k.group, previousGroup: before.group}
	return raw[groupHeader:][:length], next, before, true
}

// checkTail checks the blocks after the last complete group. These blocks may come from an earlier life, or from one
// group whose write did not finish. Any other block means that a complete group was lost.
func (c *Content) checkTail(at cursor) error {
	end := at.end
	for number := range segments * c.layout.blocks {
		k, _ := c.at(number)
		place := Position{k.life, number - c.layout.first(max(k.life, 1))}
		switch {
		case k.life == 0, place.before(end), k.life < end.Life:
		case k.life == end.Life && k.group < at.group:
			// A part of a group whose write failed. A later group overwrote its other parts.
		case k.life == end.Life && k.group > at.group && (place.Block == end.Block+k.part || place.Block == at.begin.Block+k.part):
			// Append may have failed for the last group, too, although its blocks are complete. Then the blocks of the
			// next attempt begin at the same position.
		case k.life == end.Life+1 && place.Block == k.part:
		default:
			return c.damaged(c.layout.first(end.Life)+end.Block, "the group of rows that was written there is missing, but later groups are present")
		}
	}
	return nil
}
