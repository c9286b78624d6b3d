package audit

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Head is the end of a chain: the position and hash of the last row of the chain. A chain without rows has position 0
// and a hash of zeros.
type Head struct {
	Chain    int64
	Position int64
	Hash     [32]byte
}

// Store is the part of a database that a Writer uses.
type Store interface {
	// ClaimChain claims the chain with the lowest number that no running writer has claimed.
	ClaimChain(ctx context.Context) (Chain, error)
}

// Chain is a hash chain that one writer has claimed.
type Chain interface {
	// Head reads the end of the chain. It fails if the claim is lost.
	Head(ctx context.Context) (Head, error)
	// Append commits all rows or none after the chain head "after", and returns when the rows are durable. It calls the
	// function seal with the sequence number of the first row. seal numbers and chains the rows, and returns the new
	// head. Append fails if the chain does not end at "after". If it returns an error, the rows may still have been
	// committed.
	Append(ctx context.Context, after Head, rows []keyserver.AuditEntry, seal func(first int64) Head) error
	// Release ends the claim.
	Release() error
}

// Snapshot is the extent of the audit log at one time.
type Snapshot struct {
	LastSeq int64  // the last sequence number that was assigned
	MaxSeq  int64  // the greatest sequence number among the stored rows
	Heads   []Head // by chain
	First   int64  // the first row in the database; earlier rows are archived
	Cuts    []Head // the last archived row of each chain
}

// Reader is the part of a database that Verify uses.
type Reader interface {
	AuditSnapshot(ctx context.Context) (Snapshot, error)
	// AuditRange returns at most limit rows with after < seq <= last, ordered by seq.
	AuditRange(ctx context.Context, after, last int64, limit int) ([]keyserver.AuditEntry, error)
}
