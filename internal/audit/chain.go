package audit

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// The first byte of the encoding is its version. A change of the encoding gets the next number, so that old rows can
// still be verified.
const (
	plainEncoding = 1
	// actorEncoding adds the actor at the end. Rows without an actor keep plainEncoding.
	actorEncoding = 2
	// fullEncoding adds fields that older rows do not have: address, session, purpose,
	// count and approval. Rows without any of them keep the other encodings.
	fullEncoding = 3
)

func encodingOf(e *keyserver.AuditEntry) byte {
	switch {
	case e.Address != "" || e.For != "" || e.Times() > 1 || !e.Session.IsZero() || !e.Approval.IsZero():
		return fullEncoding
	case e.Actor != keyserver.PrincipalRef{}:
		return actorEncoding
	default:
		return plainEncoding
	}
}

// AppendEncoding appends the bytes that the hash of an audit row covers: the version of the encoding, the previous
// hash, then every other field in a fixed order. A number is 8 big-endian bytes. A string follows its length in 4
// bytes, so that no two rows have the same encoding.
func AppendEncoding(b []byte, e *keyserver.AuditEntry) []byte {
	encoding := encodingOf(e)
	b = append(b, encoding)
	b = append(b, e.Previous[:]...)
	b = appendInt(b, e.Chain)
	b = appendInt(b, e.Position)
	b = appendInt(b, e.Seq)
	b = appendInt(b, e.Time.UnixMicro())
	b = appendString(b, e.Operation)
	b = appendString(b, string(e.Outcome))
	b = appendString(b, e.Reason)
	b = appendInt(b, int64(e.Principal.System))
	b = append(b, e.Principal.ID[:]...)
	b = appendString(b, e.Object)
	b = appendString(b, string(e.Kind))
	b = appendString(b, e.RequestID)
	b = appendString(b, e.Filename)
	if encoding >= actorEncoding {
		b = appendInt(b, int64(e.Actor.System))
		b = append(b, e.Actor.ID[:]...)
	}
	if encoding >= fullEncoding {
		b = appendString(b, e.Address)
		b = append(b, e.Session[:]...)
		b = appendString(b, e.For)
		b = appendInt(b, e.Times())
		b = append(b, e.Approval[:]...)
	}
	return b
}

// Sum returns the hash of a row and the buffer with its encoding. The caller can pass that buffer as scratch to the
// next call.
func Sum(scratch []byte, e *keyserver.AuditEntry) ([32]byte, []byte) {
	scratch = AppendEncoding(scratch[:0], e)
	return sha256.Sum256(scratch), scratch
}

func appendInt(b []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(n)) //nolint:gosec // two's complement is the encoding
}

func appendString(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(s))) //nolint:gosec // a Writer truncates fields far below 4 GiB
	return append(b, s...)
}
