package sqldb

import (
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// This file converts between Go values and columns of a different type.

// Fixed scans a binary column into an array of exactly its length.
func Fixed(dest []byte) sql.Scanner { return fixed{dest} }

type fixed struct{ dest []byte }

// Untrusted scans a binary column of a row that may have been tampered with. It
// accepts any length, because a later check of the row's hash reports a wrong value.
func Untrusted(dest []byte) sql.Scanner { return untrusted{dest} }

type untrusted struct{ dest []byte }

// Scan implements sql.Scanner.
func (u untrusted) Scan(src any) error {
	b, _ := src.([]byte)
	clear(u.dest[copy(u.dest, b):])
	return nil
}

// IntoID scans an identifier.
func IntoID(id *keyserver.ID) sql.Scanner { return fixed{id[:]} }

// IntoStamp scans a stamp.
func IntoStamp(s *keyserver.Stamp) sql.Scanner { return fixed{s[:]} }

// IntoHash scans a SHA-256 hash.
func IntoHash(h *[32]byte) sql.Scanner { return fixed{h[:]} }

// Scan implements sql.Scanner.
func (f fixed) Scan(src any) error {
	b, ok := src.([]byte)
	if !ok || len(b) != len(f.dest) {
		return fmt.Errorf("a column must have %d bytes", len(f.dest))
	}
	copy(f.dest, b)
	return nil
}

// IntoTime scans microseconds since 1970 UTC.
func IntoTime(dest *time.Time) sql.Scanner { return intoTime{dest} }

type intoTime struct{ dest *time.Time }

// Scan implements sql.Scanner.
func (t intoTime) Scan(src any) error {
	us, ok := src.(int64)
	if !ok {
		return errors.New("a column must have a time")
	}
	*t.dest = time.UnixMicro(us).UTC()
	return nil
}

// LookupSize is the number of ids that one statement looks up. A lookup of fewer
// ids repeats the last id.
const LookupSize = 64

// Numbered returns the parameter list of a statement that looks up LookupSize
// ids.
func Numbered() string {
	names := make([]string, LookupSize)
	for i := range names {
		names[i] = "$" + strconv.Itoa(i+1)
	}
	return strings.Join(names, ", ")
}

// Lookup returns the arguments for the parameters of Numbered: the first LookupSize
// ids. ids must not be empty.
func Lookup(ids []keyserver.ID) []any {
	args := make([]any, LookupSize)
	for i := range args {
		args[i] = ids[min(i, len(ids)-1)][:]
	}
	return args
}

// OptionalID scans an identifier; NULL is the zero id.
func OptionalID(dest *keyserver.ID) sql.Scanner { return optionalID{dest} }

type optionalID struct{ dest *keyserver.ID }

// Scan implements sql.Scanner.
func (o optionalID) Scan(src any) error {
	if src == nil {
		*o.dest = keyserver.ID{}
		return nil
	}
	return IntoID(o.dest).Scan(src)
}

// OrNull returns the column value of an identifier: NULL for the zero id.
func OrNull(id keyserver.ID) []byte {
	if id.IsZero() {
		return nil
	}
	return id[:]
}

// OrEmpty replaces nil, which drivers store as NULL, by an empty slice.
func OrEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// Flag returns 1 for true and 0 for false.
func Flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
