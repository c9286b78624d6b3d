package tree

import (
	"sync"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// maxRecent is the number of leaves that are kept until the tree has them. Further ones
// are read from the database.
const maxRecent = 1 << 17

// Recent has the leaves of rows that this process wrote recently. With them,
// the tree contains the rows as they were written, even if they were changed in
// the database since.
type Recent struct {
	mu         sync.Mutex
	leaves     map[int64]tlog.Hash
	resetCount int
	scratch    []byte
}

// NewRecent returns an empty Recent.
func NewRecent() *Recent { return &Recent{leaves: make(map[int64]tlog.Hash)} }

// Written adds durable rows.
func (r *Recent) Written(rows []keyserver.AuditEntry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range rows {
		if len(r.leaves) >= maxRecent {
			return
		}
		r.leaves[rows[i].Seq], r.scratch = audit.Leaf(r.scratch, &rows[i])
	}
}

// Reset forgets all leaves, because the database was reset to an earlier state. The rows after that state may be gone,
// and other rows may have their numbers.
func (r *Recent) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resetCount++
	clear(r.leaves)
}

// resetsSoFar returns how often Reset was called.
func (r *Recent) resetsSoFar() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.resetCount
}

// from returns the leaves of consecutive rows from seq on, up to the number most. They
// stay until the tree has them, because a growth may fail.
func (r *Recent) from(seq int64, most int) []tlog.Hash {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []tlog.Hash
	for ; len(out) < most; seq++ {
		leaf, ok := r.leaves[seq]
		if !ok {
			break
		}
		out = append(out, leaf)
	}
	return out
}

// forget removes the leaves that the tree has.
func (r *Recent) forget(size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for seq := range r.leaves {
		if seq <= size {
			delete(r.leaves, seq)
		}
	}
}
