package audit

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Head is where a chain ends: the position and hash of its last row. A chain
// without rows has position 0 and a hash of zeros.
type Head struct {
	Chain    int64
	Position int64
	Hash     [32]byte
}

// Store is what a Writer needs of a database.
type Store interface {
	// ClaimChain gives the lowest chain that no live writer holds.
	ClaimChain(ctx context.Context) (Chain, error)
}

// Chain is one chain, held by one writer.
type Chain interface {
	// Head reads where the chain ends. It fails once the claim is lost.
	Head(ctx context.Context) (Head, error)
	// Append commits rows behind after, all or none, and returns when they are
	// durable. In between it calls seal with the sequence number of the first
	// row; seal numbers and chains the rows and returns the new head. The
	// append fails if the chain no longer ends at after. When an error is
	// returned the rows may still have been committed.
	Append(ctx context.Context, after Head, rows []keyserver.AuditEntry, seal func(first int64) Head) error
	// Release gives the claim up.
	Release() error
}

// Snapshot is the extent of the trail at one moment.
type Snapshot struct {
	LastSeq int64  // the last sequence number that was given out
	MaxSeq  int64  // the greatest sequence number among the rows
	Heads   []Head // by chain
	First   int64  // the first row that is here; those before it are archived
	Cuts    []Head // where chains stood before that row
}

// Trail is what Verify needs of a database.
type Trail interface {
	AuditSnapshot(ctx context.Context) (Snapshot, error)
	// AuditRange reads rows with after < seq <= last in the order of seq, at
	// most limit of them.
	AuditRange(ctx context.Context, after, last int64, limit int) ([]keyserver.AuditEntry, error)
}
