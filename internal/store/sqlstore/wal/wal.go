// Package wal reads the write-ahead log of a SQLite database
// (https://www.sqlite.org/fileformat2.html#the_write_ahead_log), while it is written or
// from where it was copied to, and writes what it has into a copy of the database.
//
// A log is a header and frames, each of which is a page as a transaction left it. The
// last frame of a transaction says how large the database is then. A frame has the salts
// of its log, and a checksum over all that is before it, so that what is left of an older
// log, and what was not written to its end, is told from what counts.
package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

const (
	// HeaderSize is what a log has before its first frame.
	HeaderSize      = 32
	frameHeaderSize = 24

	littleMagic = 0x377f0682
	bigMagic    = 0x377f0683
	version     = 3007000

	leastPage, mostPage = 512, 1 << 16
)

// ErrDamaged says that bytes are not those of a log.
var ErrDamaged = errors.New("the write-ahead log is damaged")

// Sum is the checksum over a log up to some place in it.
type Sum [2]uint32

// Position is behind a transaction: the salts of a log, how many frames of it, and the
// checksum of the last of them. No two logs have the same position.
type Position struct {
	Salts  uint64 `json:"salts"`
	Frames int64  `json:"frames"`
	Sum    Sum    `json:"sum"`
}

// Header begins a log.
type Header struct {
	Raw   []byte
	Page  int64 // size of a page
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

// ReadHeader reads the header of a log, false where there is none that is whole.
func ReadHeader(log io.ReaderAt) (Header, bool, error) {
	raw := make([]byte, HeaderSize)
	if _, err := log.ReadAt(raw, 0); err != nil && !errors.Is(err, io.EOF) {
		return Header{}, false, err
	}
	h, err := ParseHeader(raw)
	return h, err == nil, nil
}

// sum goes on with a checksum over b, whose length is a multiple of 8.
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

// FrameSize is how many bytes a frame has.
func (h Header) FrameSize() int64 { return frameHeaderSize + h.Page }

// offset is where a frame begins, from 0 on.
func (h Header) offset(frame int64) int64 { return HeaderSize + frame*h.FrameSize() }

// frame is one that is as it was written.
type frame struct {
	number uint32 // of the page, from 1 on
	pages  uint32 // of the database behind the transaction that it ends; 0: it ends none
	page   []byte
	sum    Sum
}

// check answers a frame that follows a checksum, false where these bytes are none.
func (h Header) check(b []byte, after Sum) (frame, bool) {
	f := frame{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:]), b[frameHeaderSize:], sumAt(b[16:])}
	if f.number == 0 || binary.BigEndian.Uint64(b[8:]) != h.Start.Salts {
		return f, false
	}
	return f, h.sum(h.sum(after, b[:8]), f.page) == f.sum
}

// Scan answers where the last transaction ends that is behind a position of this log, and
// false where the log does not have that position.
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

// has looks whether the frame before a position is the one that was there.
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

// Frames reads the bytes of the frames between two positions.
func (h Header) Frames(log io.ReaderAt, from, to Position) *io.SectionReader {
	return io.NewSectionReader(log, h.offset(from.Frames), (to.Frames-from.Frames)*h.FrameSize())
}

// Apply writes the frames between two positions into a copy of the database.
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
			return fmt.Errorf("%w: frame %d is not as it was written", ErrDamaged, at.Frames+1)
		}
		if _, err := database.WriteAt(f.page, int64(f.number-1)*h.Page); err != nil {
			return err
		}
		at.Sum, pages = f.sum, f.pages
	}
	if at != to || pages == 0 && from != to {
		return fmt.Errorf("%w: it does not end with a transaction", ErrDamaged)
	}
	if from == to {
		return nil
	}
	return database.Truncate(int64(pages) * h.Page)
}
