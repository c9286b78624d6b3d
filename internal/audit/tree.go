package audit

import (
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Leaf returns the hash of a row as a leaf of the audit tree (RFC 6962 section 2.1), and the buffer with the row's
// encoding. The index of the leaf is the row's sequence number minus 1.
func Leaf(scratch []byte, e *keyserver.AuditEntry) (tlog.Hash, []byte) {
	scratch = AppendEncoding(scratch[:0], e)
	return tlog.RecordHash(scratch), scratch
}

// TreeHead is the state of the audit tree: its size, its root, and the signed checkpoint with this size and root. The
// checkpoint may be missing only if the tree is empty.
type TreeHead struct {
	Size       int64
	Root       tlog.Hash
	At         time.Time
	Checkpoint []byte // C2SP tlog-checkpoint
}

// Tile is the unit in which the tree is stored: up to 256 consecutive hashes of one level (C2SP tlog-tiles).
type Tile struct {
	Level  int
	Index  int64
	Hashes []byte
}
