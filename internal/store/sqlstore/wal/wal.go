// Package wal reads the write-ahead log of a SQLite database
// (https://www.sqlite.org/fileformat2.html#the_write_ahead_log), either while SQLite writes the log, or from a copy. It
// writes the pages of a log into a copy of the database.
//
// A log is a header and frames. A frame has the new content of a page. The last frame of a transaction also has the
// size of the database. Each frame has the salts of the log and a checksum over all previous frames. Salts and checksum
// show whether a frame is valid, or is part of an older log or of an incomplete write.
package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

const (
	// HeaderSize is the size of the header in bytes.
	HeaderSize      = 32
	frameHeaderSize = 24

	littleMagic = 0x377f0682
	bigMagic    = 0x377f0683
	version     = 3007000

	leastPage, mostPage = 512, 1 << 16
)

// ErrDamaged means that the input is not part of a valid log.
var ErrDamaged = errors.New("the write-ahead log is damaged")

// Sum is the checksum over the beginning of a log.
type Sum [2]uint32

// Position is the end of a transaction in a log: the salts of the log, the number of frames
// up to that end, and the checksum of the last frame. The salts differ between logs.
type Position struct {
	Salts  uint64 `json:"salts"`
	Frames int64  `json:"frames"`
	Sum    Sum    `json:"sum"`
}

// Header is the header of a log.
type Header struct {
	Raw   []byte
	Page  int64 // size of a page in bytes
	Start Position

	order binary.ByteOrder
}

// ParseHeader reads the header of a log.
func ParseHeader(raw []byte) (Header, error) {
	if len(raw) != HeaderSize || binary.BigEndian.Uint32(raw[4:]) != version {
		return Header{}, ErrDamaged
	}
	h := Header{Raw: raw, Page: int64(binary.BigEndian.Uint32(raw[8:])), Start: Position{Salts: binary.BigEndian.Uint64(raw[16:])}}
	switch binary.BigEndian.Uint32(raw) {
	case littleMagic:
		h.order = binary.LittleEndian
	case bigMagic:
		h.order = binary.BigEndian
	default:
		return Header{}, ErrDamaged
	}
	h.Start.Sum = h.sum(Sum{}, raw[:24])
	if h.Start.Sum != sumAt(raw[24:]) || h.Page < leastPage || h.Page > mostPage || h.Page&(h.Page-1) != 0 {
		return Header{}, ErrDamaged
	}
	return h, nil
}

// ReadHeader reads the header of a log. It returns false if there is no valid header.
func ReadHeader(log io.ReaderAt) (Header, bool, error) {
	raw := make([]byte, HeaderSize)
	if _, err := log.ReadAt(raw, 0); err != nil && !errors.Is(err, io.EOF) {
		return Header{}, false, err
	}
	h, err := ParseHeader(raw)
	return h, err == nil, nil
}

// sum continues a checksum over b. The length of b is a multiple of 8.
func (h Header) sum(s Sum, b []byte) Sum {
	for ; len(b) >= 8; b = b[8:] {
		s[0] += h.order.Uint32(b) + s[1]
		s[1] += h.order.Uint32(b[4:]) + s[0]
	}
	return s
}

func sumAt(b []byte) Sum {
	return Sum{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])}
}

// FrameSize returns the size of a frame in bytes.
func (h Header) FrameSize() int64 { return frameHeaderSize + h.Page }

func (h Header) offset(frame int64) int64 { return HeaderSize + frame*h.FrameSize() }

type frame struct {
	number uint32 // number of the page, from 1 on
	pages  uint32 // if the frame ends a transaction, the size of the database in pages; otherwise 0
	page   []byte
	sum    Sum
}

// check parses a frame. It returns false if the frame is invalid. after is the checksum of
// the previous frame.
func (h Header) check(b []byte, after Sum) (frame, bool) {
	f := frame{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:]), b[frameHeaderSize:], sumAt(b[16:])}
	if f.number == 0 || binary.BigEndian.Uint64(b[8:]) != h.Start.Salts {
		return f, false
	}
	return f, h.sum(h.sum(after, b[:8]), f.page) == f.sum
}

// Scan returns the end of the last complete transaction in this log. It begins at the
// position from, and returns false if the log does not have that position.
func (h Header) Scan(log io.ReaderAt, from Position) (Position, bool, error) {
	if there, err := h.has(log, from); err != nil || !there {
		return from, false, err
	}
	end, at := from, from
	in := io.NewSectionReader(log, h.offset(from.Frames), 1<<62)
	b := make([]byte, h.FrameSize())
	for {
		if _, err := io.ReadFull(in, b); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return end, true, nil
			}
			return end, true, err
		}
		f, good := h.check(b, at.Sum)
		if !good {
			return end, true, nil
		}
		at.Frames, at.Sum = at.Frames+1, f.sum
		if f.pages > 0 {
			end = at
		}
	}
}

// has reports whether the log has a position: the last frame before the position is unchanged.
func (h Header) has(log io.ReaderAt, at Position) (bool, error) {
	if at.Salts != h.Start.Salts {
		return false, nil
	}
	if at.Frames == 0 {
		return at == h.Start, nil
	}
	b := make([]byte, frameHeaderSize)
	if _, err := log.ReadAt(b, h.offset(at.Frames-1)); err != nil {
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		return false, err
	}
	return binary.BigEndian.Uint64(b[8:]) == at.Salts && sumAt(b[16:]) == at.Sum, nil
}

// Frames returns a reader of the frames between two positions.
func (h Header) Frames(log io.ReaderAt, from, to Position) *io.SectionReader {
	return io.NewSectionReader(log, h.offset(from.Frames), (to.Frames-from.Frames)*h.FrameSize())
}

// Apply writes the pages in the frames between two positions into a copy of the database. It
// returns ErrDamaged if the frames are invalid or do not end with a complete transaction.
func (h Header) Apply(frames io.Reader, from, to Position, database *os.File) error {
	if from.Salts != h.Start.Salts || to.Salts != h.Start.Salts || from.Frames > to.Frames || from.Frames == 0 && from != h.Start {
		return ErrDamaged
	}
	at, pages := from, uint32(0)
	b := make([]byte, h.FrameSize())
	for ; at.Frames < to.Frames; at.Frames++ {
		if _, err := io.ReadFull(frames, b); err != nil {
			return fmt.Errorf("%w: frame %d cannot be read", ErrDamaged, at.Frames+1)
		}
		f, good := h.check(b, at.Sum)
		if !good {
			return fmt.Errorf("%w: frame %d was changed after it was written", ErrDamaged, at.Frames+1)
		}
		if _, err := database.WriteAt(f.page, int64(f.number-1)*h.Page); err != nil {
			return err
		}
		at.Sum, pages = f.sum, f.pages
	}
	if at != to || pages == 0 && from != to {
		return fmt.Errorf("%w: it does not end with a complete transaction", ErrDamaged)
	}
	if from == to {
		return nil
	}
	return database.Truncate(int64(pages) * h.Page)
}
