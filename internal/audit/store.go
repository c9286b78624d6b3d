package audit

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Head is the end of a chain: the position and hash of its last row. A chain without rows
// has position 0 and a hash of zeros.
type Head struct {
	Chain    int64
	Position int64
	Hash     [32]byte
}

// Store is the part of a database that a Writer uses.
type Store interface {
	// ClaimChain claims the lowest chain that no running writer holds.
	ClaimChain(ctx context.Context) (Chain, error)
}

// Chain is one chain, held by one writer.
type Chain interface {
	// Head reads the end of the chain. It fails if the claim is lost.
	Head(ctx context.Context) (Head, error)
	// Append commits rows after the head "after", all or none, and returns when they are durable. It calls the function
	// seal with the sequence number of the first row. seal numbers and chains the rows, and returns the new head.
	// Append fails if the chain does not end at "after". If it returns an error, the rows may still have been
	// committed.
	Append(ctx context.Context, after Head, rows []keyserver.AuditEntry, seal func(first int64) Head) error
	// Release ends the claim.
	Release() error
}

// Snapshot is the extent of the audit log at one moment.
type Snapshot struct {
	LastSeq int64  // the last sequence number that was assigned
	MaxSeq  int64  // the greatest sequence number among the rows
	Heads   []Head // by chain
	First   int64  // the first row in the database; earlier ones are archived
	Cuts    []Head // the heads of chains before that row
}

// Reader is the part of a database that Verify uses.
type Reader interface {
	AuditSnapshot(ctx context.Context) (Snapshot, error)
	// AuditRange returns at most limit rows with after < seq <= last, ordered by seq.
	AuditRange(ctx context.Context, after, last int64, limit int) ([]keyserver.AuditEntry, error)
}
