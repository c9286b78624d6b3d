package tree

import (
	"sync"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// maxRecent bounds the leaves that are kept until the tree has them; what is beyond
// is read from the database.
const maxRecent = 1 << 17

// Recent are the leaves of rows that this process has written of late. A tree that
// takes them from here has the rows as they were written, whatever became of them in
// the database since.
type Recent struct {
	mu      sync.Mutex
	leaves  map[int64]tlog.Hash
	losses  int
	scratch []byte
}

// NewRecent makes an empty one.
func NewRecent() *Recent { return &Recent{leaves: make(map[int64]tlog.Hash)} }

// Written takes rows that are durable.
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

// Lose forgets all of them: the database has gone back, and rows that it had may be
// gone, and their numbers given to others.
func (r *Recent) Lose() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.losses++
	clear(r.leaves)
}

// lost is how often they were.
func (r *Recent) lost() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.losses
}

// from answers the leaves of consecutive rows from one on, at most so many. They stay
// until the tree has them: a growth may fail.
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

// forget drops what the tree has.
func (r *Recent) forget(size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for seq := range r.leaves {
		if seq <= size {
			delete(r.leaves, seq)
		}
	}
}
