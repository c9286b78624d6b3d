package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

var errEncoding = errors.New("the bytes are not an encoded audit row")

// Decode decodes bytes that AppendEncoding created, and fails for all other bytes. It sets the hash of the row to the
// hash of the bytes.
func Decode(encoded []byte) (keyserver.AuditEntry, error) {
	var e keyserver.AuditEntry
	d := decoder{rest: encoded}
	encoding := d.take(1)
	if encoding == nil {
		return e, errEncoding
	}
	copy(e.Previous[:], d.take(len(e.Previous)))
	e.Chain, e.Position, e.Seq = d.int(), d.int(), d.int()
	e.Time = time.UnixMicro(d.int()).UTC()
	e.Operation, e.Outcome, e.Reason = d.string(), keyserver.Outcome(d.string()), d.string()
	e.Principal = d.principal()
	e.Object, e.Kind, e.RequestID, e.Filename = d.string(), keyserver.SessionKind(d.string()), d.string(), d.string()
	if encoding[0] >= actorEncoding {
		e.Actor = d.principal()
	}
	if encoding[0] >= fullEncoding {
		e.Address = d.string()
		copy(e.Session[:], d.take(len(e.Session)))
		e.For, e.Count = d.string(), d.int()
		copy(e.Approval[:], d.take(len(e.Approval)))
	}
	// Each row has exactly one encoding.
	if d.failed || !bytes.Equal(AppendEncoding(nil, &e), encoded) {
		return e, errEncoding
	}
	e.Hash = sha256.Sum256(encoded)
	return e, nil
}

// decoder reads fields from the beginning of rest. After a failure it returns zero values.
type decoder struct {
	rest   []byte
	failed bool
}

func (d *decoder) take(n int) []byte {
	if d.failed || n > len(d.rest) {
		d.failed = true
		return nil
	}
	out := d.rest[:n]
	d.rest = d.rest[n:]
	return out
}

func (d *decoder) int() int64 {
	b := d.take(8)
	if b == nil {
		return 0
	}
	return int64(binary.BigEndian.Uint64(b)) //nolint:gosec // two's complement is the encoding
}

func (d *decoder) string() string {
	b := d.take(4)
	if b == nil {
		return ""
	}
	return string(d.take(int(binary.BigEndian.Uint32(b))))
}

func (d *decoder) principal() keyserver.PrincipalRef {
	p := keyserver.PrincipalRef{System: keyserver.SystemID(d.int())} //nolint:gosec // compared below by encoding again
	copy(p.ID[:], d.take(len(p.ID)))
	return p
}
