package tree

import (
	"sync"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// maxRecent is the maximum number of kept leaves. Leaves beyond it are computed from the database.
const maxRecent = 1 << 17

// Recent keeps the leaves of rows that this process wrote, until the tree contains them. So the leaves in the tree
// match the written rows, even if the rows were changed in the database after the write.
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

// Reset forgets all leaves. It is called when the database was reset to an earlier state: rows after that state may be
// lost, and other rows may get their numbers.
func (r *Recent) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resetCount++
	clear(r.leaves)
}

func (r *Recent) resetsSoFar() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.resetCount
}

// from returns the leaves of at most most consecutive rows, beginning with the row seq. It does not remove them,
// because adding them to the tree may fail.
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

// forget removes the leaves that a tree of the given size contains.
func (r *Recent) forget(size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for seq := range r.leaves {
		if seq <= size {
			delete(r.leaves, seq)
		}
	}
}
