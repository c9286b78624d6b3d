package keyserver

import (
	"fmt"
	"time"
)

// Outcome is how an audited operation ended.
type Outcome string

// The outcomes. An operation is recorded as allowed before its effect; if the
// effect then fails, a second row says failed. A refusal has one row. If another change
// brought it between the decision and the effect, it is a second row.
const (
	Allowed Outcome = "allowed"
	Refused Outcome = "refused"
	Failed  Outcome = "failed"
)

// AuditEntry is one row of the audit trail.
type AuditEntry struct {
	Seq       int64
	Time      time.Time
	Operation string
	Outcome   Outcome
	Reason    string // coded cause, empty for allowed
	Principal PrincipalRef
	Object    string
	Kind      SessionKind
	RequestID string
	Filename  string
	// Actor is who really acted in the name of Principal, zero where nobody
	// else did.
	Actor PrincipalRef
	// Address is the client's, as far as it is known.
	Address string
	// Session is the public id of the caller's session, zero where there is none.
	Session ID
	// For is what the caller said that it acts for. Nobody checks it.
	For string
	// Count is how many times the same happened; 0 and 1 are once.
	Count int64
	// Approval is the one under which it was done, zero where none was asked for.
	Approval ID
	// UsedKey is the key of this key server whose use the row records, zero where it
	// records none. It is counted, and no part of the row.
	UsedKey ID
	// Chain, Position, Hash and Previous link the row to its predecessor on
	// the same chain; the first row's Previous is all zero.
	Chain    int64
	Position int64
	Hash     [32]byte
	Previous [32]byte
}

// Times is how many times what the row records has happened.
func (e *AuditEntry) Times() int64 { return max(e.Count, 1) }

// AuditFilter selects audit rows. Zero fields select everything.
type AuditFilter struct {
	Reason    string
	Principal *ID
	Operation string
	Outcome   Outcome
	Object    string
	Address   string
	Session   *ID // public
	Since     time.Time
	Until     time.Time
	Newest    bool  // first, else the oldest
	After     int64 // where the page starts: behind the row with this Seq in that order; 0 is the beginning
	Limit     int
}

// AuditPage is one page of the trail, in the order that was asked for.
type AuditPage struct {
	Entries []AuditEntry
	Next    int64 // After of the next page, 0 when this one is the last
	// ArchivedBefore is the first row that there is, where those before it are in the
	// archive, and 0 where there are all.
	ArchivedBefore int64
}

// AuditKey is what verifies the checkpoints of the audit tree.
type AuditKey struct {
	Origin string
	Key    string // as C2SP signed-note spells a public key
}

// AuditTile names a tile of the audit tree (C2SP tlog-tiles).
type AuditTile struct {
	Entries bool // the rows of a tile of level 0, not the hashes
	Level   int
	Index   int64
	Width   int // 1 to AuditTileWidth
}

// AuditTileWidth is how many hashes, or rows, a whole tile has.
const AuditTileWidth = 256

// Rows are the numbers of the first and the last row of a tile of level 0, as "257-512".
func (t AuditTile) Rows() string {
	first := t.Index * AuditTileWidth
	return fmt.Sprintf("%d-%d", first+1, first+int64(t.Width))
}
