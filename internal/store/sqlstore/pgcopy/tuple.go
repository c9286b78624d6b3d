// Package pgcopy encodes and decodes rows of tables in the binary format of PostgreSQL's COPY
// (https://www.postgresql.org/docs/current/sql-copy.html), with three types only: int8, text and bytea. PostgreSQL
// itself writes and reads this format.
package pgcopy

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"unicode/utf8"
)

// Type is the type of a column. A column can also be NULL.
type Type string

// The types of columns. Their Go types are int64, string and []byte.
const (
	Int   Type = "int"
	Text  Type = "text"
	Bytes Type = "bytes"
)

// MaxField is the maximum size of a field in bytes.
const MaxField = 1 << 28

// header is the file header: the signature, no flags, and no extension.
var header = []byte("PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00")

// trailer follows the last row, in place of the number of fields of a row.
const trailer = -1

// ErrDamaged means that the input is not in this format, or has other types.
var ErrDamaged = errors.New("damaged")

// Writer writes rows.
type Writer struct {
	to  *bufio.Writer
	row []byte // reused
}

// NewWriter returns a Writer and writes the header.
func NewWriter(to io.Writer) *Writer {
	w := &Writer{to: bufio.NewWriterSize(to, 1<<16)}
	_, _ = w.to.Write(header) // bufio.Writer returns an error again in Flush
	return w
}

// Row writes a row. Its values are int64, string, []byte or nil.
func (w *Writer) Row(types []Type, values []any) error {
	w.row = binary.BigEndian.AppendUint16(w.row[:0], uint16(len(values))) //nolint:gosec // columns of a table
	for i, value := range values {
		at := len(w.row)
		w.row = append(w.row, 0, 0, 0, 0)
		var fits bool
		switch v := value.(type) {
		case nil:
			binary.BigEndian.PutUint32(w.row[at:], math.MaxUint32) // length -1 means NULL
			continue
		case int64:
			w.row, fits = binary.BigEndian.AppendUint64(w.row, uint64(v)), types[i] == Int //nolint:gosec // the same bits
		case string:
			w.row, fits = append(w.row, v...), types[i] == Text
		case []byte:
			w.row, fits = append(w.row, v...), types[i] == Bytes
		}
		if size := len(w.row) - at - 4; fits && size <= MaxField {
			binary.BigEndian.PutUint32(w.row[at:], uint32(size)) //nolint:gosec // at most MaxField
			continue
		}
		return fmt.Errorf("column %d is not a %s", i+1, types[i])
	}
	_, err := w.to.Write(w.row)
	return err
}

// Close writes the trailer.
func (w *Writer) Close() error {
	_, _ = w.to.Write([]byte{0xff, 0xff})
	return w.to.Flush()
}

// Reader reads rows.
type Reader struct {
	from   *bufio.Reader
	types  []Type
	begun  bool
	values []any
	row    int64
}

// NewReader returns a Reader of rows whose columns have these types.
func NewReader(from io.Reader, types []Type) *Reader {
	return &Reader{from: bufio.NewReaderSize(from, 1<<16), types: types, values: make([]any, len(types))}
}

// Rows returns how many rows were read.
func (r *Reader) Rows() int64 { return r.row }

// Next reads the next row. The row is valid until the next call. At the trailer, Next returns
// io.EOF. If the trailer is missing, the error wraps ErrDamaged.
func (r *Reader) Next() ([]any, error) {
	if !r.begun {
		r.begun = true
		var begin [19]byte
		if _, err := io.ReadFull(r.from, begin[:]); err != nil {
			return nil, r.damaged(err, "it ends within its header")
		}
		if string(begin[:]) != string(header) {
			return nil, r.damaged(nil, "its header is invalid")
		}
	}
	count, err := r.take(2)
	if err != nil {
		return nil, r.damaged(err, "the end of the rows is missing")
	}
	switch n := int16(binary.BigEndian.Uint16(count)); { //nolint:gosec // the same bits
	case n == trailer:
		if _, err := r.from.ReadByte(); !errors.Is(err, io.EOF) {
			return nil, r.damaged(err, "there is data after the last row")
		}
		return nil, io.EOF
	case int(n) != len(r.types):
		return nil, r.damaged(nil, "its columns differ from those of its table")
	}
	for i, t := range r.types {
		if r.values[i], err = r.field(t); err != nil {
			return nil, err
		}
	}
	r.row++
	return r.values, nil
}

func (r *Reader) field(t Type) (any, error) {
	size, err := r.take(4)
	if err != nil {
		return nil, r.damaged(err, "it is cut off")
	}
	n := binary.BigEndian.Uint32(size)
	switch {
	case n == math.MaxUint32:
		return nil, nil //nolint:nilnil // NULL
	case n > MaxField, t == Int && n != 8:
		return nil, r.damaged(nil, "a column has a length that its type does not allow")
	}
	b, err := r.read(int(n))
	if err != nil {
		return nil, r.damaged(err, "it is cut off")
	}
	switch t {
	case Int:
		return int64(binary.BigEndian.Uint64(b)), nil //nolint:gosec // the same bits
	case Text:
		if !utf8.Valid(b) {
			return nil, r.damaged(nil, "a text is not UTF-8")
		}
		return string(b), nil
	case Bytes:
		if n <= short {
			return append([]byte{}, b...), nil // nil would be NULL
		}
		return b, nil
	}
	return nil, r.damaged(nil, "the type of a column is unknown")
}

// short is the maximum size in bytes of a field that is returned from the buffer of the Reader without a copy. Nearly
// all fields are that short, and a restore may have billions of fields.
const short = 1 << 12

// take returns the next n bytes. n is at most short. The result is valid until the next read.
func (r *Reader) take(n int) ([]byte, error) {
	b, err := r.from.Peek(n)
	if err != nil {
		return nil, err
	}
	_, err = r.from.Discard(n)
	return b, err
}

// firstRead is how much memory is allocated at first for a field. So a wrong length in the input does not allocate much
// memory.
const firstRead = 1 << 20

func (r *Reader) read(n int) ([]byte, error) {
	if n <= short {
		return r.take(n)
	}
	var b []byte
	for len(b) < n {
		had := len(b)
		b = slices.Grow(b, min(n-had, max(had, firstRead)))[:had+min(n-had, max(had, firstRead))]
		if _, err := io.ReadFull(r.from, b[had:]); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// damaged returns err if the source could not be read, and otherwise an error that wraps
// ErrDamaged.
func (r *Reader) damaged(err error, what string) error {
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return fmt.Errorf("%w: row %d: %s", ErrDamaged, r.row+1, what)
}
