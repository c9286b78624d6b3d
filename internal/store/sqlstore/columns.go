package sqlstore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Columns whose form in the database is not the form in memory.

// fixed scans a binary column into an array of exactly its length.
type fixed struct{ dest []byte }

// untrusted scans a binary column of a row that may have been tampered with: a
// wrong length is for the verification of hashes to find, and must not stop it.
type untrusted struct{ dest []byte }

// Scan implements sql.Scanner.
func (u untrusted) Scan(src any) error {
	b, _ := src.([]byte)
	clear(u.dest[copy(u.dest, b):])
	return nil
}

func intoID(id *keyserver.ID) fixed      { return fixed{id[:]} }
func intoStamp(s *keyserver.Stamp) fixed { return fixed{s[:]} }
func intoHash(h *[32]byte) fixed         { return fixed{h[:]} }

// Scan implements sql.Scanner.
func (f fixed) Scan(src any) error {
	b, ok := src.([]byte)
	if !ok || len(b) != len(f.dest) {
		return fmt.Errorf("a column does not hold the %d bytes it should", len(f.dest))
	}
	copy(f.dest, b)
	return nil
}

// intoTime scans microseconds since 1970 UTC.
type intoTime struct{ dest *time.Time }

// Scan implements sql.Scanner.
func (t intoTime) Scan(src any) error {
	us, ok := src.(int64)
	if !ok {
		return errors.New("a column does not hold a time")
	}
	*t.dest = time.UnixMicro(us).UTC()
	return nil
}

// lookupSize is how many ids one statement looks up. Few fill it; the rest of
// it repeats an id.
const lookupSize = 64

func numbered() string {
	names := make([]string, lookupSize)
	for i := range names {
		names[i] = "$" + strconv.Itoa(i+1)
	}
	return strings.Join(names, ", ")
}

// lookup are the arguments of such a statement for the first of the ids, of which
// there is one at least.
func lookup(ids []keyserver.ID) []any {
	args := make([]any, lookupSize)
	for i := range args {
		args[i] = ids[min(i, len(ids)-1)][:]
	}
	return args
}

// optionalID scans a column that may be NULL, which is the zero id.
type optionalID struct{ dest *keyserver.ID }

// Scan implements sql.Scanner.
func (o optionalID) Scan(src any) error {
	if src == nil {
		*o.dest = keyserver.ID{}
		return nil
	}
	return intoID(o.dest).Scan(src)
}

// orNull is the inverse.
func orNull(id keyserver.ID) []byte {
	if id.IsZero() {
		return nil
	}
	return id[:]
}

// orEmpty keeps nil, which means NULL to the drivers, out of the database.
func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
