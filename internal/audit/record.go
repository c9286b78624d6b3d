package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

var errRecord = errors.New("the bytes are not encoded audit rows")

// AppendRecord appends a row in the format of the journal: the length of its encoding in 4 bytes, the encoding that its
// hash covers, and the key whose use it records.
func AppendRecord(b []byte, e *keyserver.AuditEntry) []byte {
	at := len(b)
	b = AppendEncoding(append(b, 0, 0, 0, 0), e)
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4)) //nolint:gosec // a Writer truncates fields far below 4 GiB
	return append(b, e.UsedKey[:]...)
}

// ReadRecords decodes consecutive rows that AppendRecord wrote, and appends them to rows. It computes the hash of each
// row from the bytes.
func ReadRecords(rows []keyserver.AuditEntry, b []byte) ([]keyserver.AuditEntry, error) {
	for len(b) > 0 {
		r := record{rest: b}
		encoding := r.bytes(r.length())
		used := r.bytes(len(keyserver.ID{}))
		if r.short {
			return nil, errRecord
		}
		row, err := readEncoding(encoding)
		if err != nil {
			return nil, err
		}
		copy(row.UsedKey[:], used)
		rows, b = append(rows, row), r.rest
	}
	return rows, nil
}

// readEncoding is the reverse of AppendEncoding.
func readEncoding(b []byte) (keyserver.AuditEntry, error) {
	r := record{rest: b}
	var e keyserver.AuditEntry
	encoding := r.bytes(1)
	r.into(e.Previous[:])
	e.Chain = r.int()
	e.Position = r.int()
	e.Seq = r.int()
	e.Time = time.UnixMicro(r.int()).UTC()
	e.Operation = r.string()
	e.Outcome = keyserver.Outcome(r.string())
	e.Reason = r.string()
	e.Principal = r.ref()
	e.Object = r.string()
	e.Kind = keyserver.SessionKind(r.string())
	e.RequestID = r.string()
	e.Filename = r.string()
	if r.short || encoding[0] < plainEncoding || encoding[0] > fullEncoding {
		return e, errRecord
	}
	if encoding[0] >= actorEncoding {
		e.Actor = r.ref()
	}
	if encoding[0] >= fullEncoding {
		e.Address = r.string()
		r.into(e.Session[:])
		e.For = r.string()
		e.Count = r.int()
		r.into(e.Approval[:])
	}
	if r.short || len(r.rest) > 0 {
		return e, errRecord
	}
	e.Hash = sha256.Sum256(b)
	return e, nil
}

// record decodes fields from the beginning of rest.
type record struct {
	rest  []byte
	short bool // rest ended too early; all values that are read later are zero
}

func (r *record) bytes(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.rest, r.short = nil, true
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *record) into(dest []byte) { copy(dest, r.bytes(len(dest))) }

func (r *record) int() int64 {
	b := r.bytes(8)
	if r.short {
		return 0
	}
	return int64(binary.BigEndian.Uint64(b)) //nolint:gosec // two's complement is the encoding
}

func (r *record) length() int {
	b := r.bytes(4)
	if r.short {
		return 0
	}
	return int(binary.BigEndian.Uint32(b))
}

func (r *record) string() string { return string(r.bytes(r.length())) }

func (r *record) ref() keyserver.PrincipalRef {
	ref := keyserver.PrincipalRef{System: keyserver.SystemID(r.int())} //nolint:gosec // as it was encoded
	r.into(ref.ID[:])
	return ref
}
