package pgcopy_test

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/pgcopy"
)

var types = []pgcopy.Type{pgcopy.Int, pgcopy.Text, pgcopy.Bytes}

var rows = [][]any{
	{int64(-1), "text", []byte{0, 1}},
	{nil, nil, nil},
	{int64(1) << 62, "", []byte{}},
	{int64(0), "ümlaut", bytes.Repeat([]byte{7}, 3<<20)},
}

func written(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := pgcopy.NewWriter(&b)
	for _, row := range rows {
		if err := w.Row(types, row); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func read(b []byte, types []pgcopy.Type) ([][]any, error) {
	var all [][]any
	r := pgcopy.NewReader(bytes.NewReader(b), types)
	for {
		row, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, append([]any(nil), row...))
	}
}

func TestRowsAreRefused(t *testing.T) {
	whole := written(t)
	change := func(at int, to byte) []byte {
		b := bytes.Clone(whole)
		b[at] = to
		return b
	}
	for reason, b := range map[string][]byte{
		"nothing":                       nil,
		"another beginning":             change(0, 'X'),
		"flags":                         change(14, 1),
		"more columns":                  change(20, 4),
		"a longer number":               change(24, 9),
		"a negative length":             change(21, 0x80),
		"a text that is not UTF-8":      change(37, 0xff),
		"something behind the last row": append(bytes.Clone(whole), 0),
	} {
		if _, err := read(b, types); !errors.Is(err, pgcopy.ErrDamaged) {
			t.Errorf("%s: %v", reason, err)
		}
	}
	for _, n := range []int{1, 18, 19, 20, 21, 25, 40, len(whole) / 2, len(whole) - 3, len(whole) - 1} {
		if _, err := read(whole[:n], types); !errors.Is(err, pgcopy.ErrDamaged) {
			t.Errorf("the first %d of %d bytes: %v", n, len(whole), err)
		}
	}
	if _, err := read(whole, types[:2]); !errors.Is(err, pgcopy.ErrDamaged) {
		t.Errorf("a table of other columns: %v", err)
	}
	for reason, row := range map[string][]any{
		"another type": {"1", "text", []byte{}}, "a type that there is not": {1.5, "text", []byte{}},
	} {
		if err := pgcopy.NewWriter(io.Discard).Row(types, row); err == nil {
			t.Errorf("%s is written", reason)
		}
	}
}

func TestRows(t *testing.T) {
	got, err := read(written(t), types)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(rows, got) { // a printed difference would have megabytes
		t.Errorf("%d rows were written, and %d others were read", len(rows), len(got))
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff"))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = read(b, types) })
}
