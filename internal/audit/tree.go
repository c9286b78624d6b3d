package audit

import (
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Leaf answers the hash of a row as a leaf of the tree over all rows (RFC 6962
// section 2.1), whose index is one less than the row's sequence number.
func Leaf(scratch []byte, e *keyserver.AuditEntry) (tlog.Hash, []byte) {
	scratch = AppendEncoding(scratch[:0], e)
	return tlog.RecordHash(scratch), scratch
}

// TreeHead is how far the tree has grown: its size and root, and the checkpoint
// that was signed for them. A tree that has never grown has none.
type TreeHead struct {
	Size       int64
	Root       tlog.Hash
	At         time.Time
	Checkpoint []byte // C2SP tlog-checkpoint
}

// Tile is what is stored of a tree: up to 256 hashes of one level (C2SP tlog-tiles),
// one behind the other.
type Tile struct {
	Level  int
	Index  int64
	Hashes []byte
}
