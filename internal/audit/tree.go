package audit

import (
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Leaf returns the hash of a row as a leaf of the tree over all rows (RFC 6962 section
// 2.1), and the buffer with its encoding. The index of the leaf is one less than the
// row's sequence number.
func Leaf(scratch []byte, e *keyserver.AuditEntry) (tlog.Hash, []byte) {
	scratch = AppendEncoding(scratch[:0], e)
	return tlog.RecordHash(scratch), scratch
}

// TreeHead is the state of the tree: its size and root, and the checkpoint that was
// signed for them. An empty tree has no checkpoint.
type TreeHead struct {
	Size       int64
	Root       tlog.Hash
	At         time.Time
	Checkpoint []byte // C2SP tlog-checkpoint
}

// Tile is the unit in which a tree is stored: up to 256 consecutive hashes of one level
// (C2SP tlog-tiles).
type Tile struct {
	Level  int
	Index  int64
	Hashes []byte
}
