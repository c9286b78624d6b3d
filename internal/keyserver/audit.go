package keyserver

import (
	"fmt"
	"time"
)

// Outcome is the result of an audited operation.
type Outcome string

// The outcomes. An operation is recorded as allowed before its effect. If the effect then fails, a second row says
// failed. A refusal has one row. It is the second row if a concurrent change caused it after the decision.
const (
	Allowed Outcome = "allowed"
	Refused Outcome = "refused"
	Failed  Outcome = "failed"
)

// AuditEntry is one row of the audit log.
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
	// Actor is the principal that acted in the name of Principal, zero if Principal acted
	// itself.
	Actor PrincipalRef
	// Address is the client's address, empty if unknown.
	Address string
	// Session is the public id of the caller's session, zero for none.
	Session ID
	// For is the purpose that the caller stated. It is not checked.
	For string
	// Count is the number of identical events that the row records; 0 and 1 both mean one.
	Count int64
	// Approval is the approval under which the operation ran, zero for none.
	Approval ID
	// UsedKey is the local key whose use the row records, zero for none. The key server counts the use; the stored row
	// does not contain UsedKey.
	UsedKey ID
	// Chain, Position, Hash and Previous link the row to its predecessor on the same
	// chain. Previous is all zero for the first row.
	Chain    int64
	Position int64
	Hash     [32]byte
	Previous [32]byte
}

// Times returns the number of events that the row records.
func (e *AuditEntry) Times() int64 { return max(e.Count, 1) }

// AuditFilter selects audit rows. A zero field selects everything.
type AuditFilter struct {
	Reason    string
	Principal *ID
	Operation string
	Outcome   Outcome
	Object    string
	Address   string
	Session   *ID // public id
	Since     time.Time
	Until     time.Time
	Newest    bool  // newest rows first, else oldest first
	After     int64 // the page starts after the row with this Seq, in the order of Newest; 0 is the start
	Limit     int
}

// AuditPage is one page of the audit log, in the requested order.
type AuditPage struct {
	Entries []AuditEntry
	Next    int64 // After of the next page, 0 on the last page
	// ArchivedBefore is the Seq of the first row in the database if earlier rows are only in the audit archive. It is 0
	// if the database has all rows.
	ArchivedBefore int64
}

// AuditKey is the public key that verifies the checkpoints of the audit tree.
type AuditKey struct {
	Origin string
	Key    string // in the format of C2SP signed-note
}

// AuditTile names a tile of the audit tree (C2SP tlog-tiles).
type AuditTile struct {
	Entries bool // selects the rows of a tile of level 0 instead of the hashes
	Level   int
	Index   int64
	Width   int // 1 to AuditTileWidth
}

// AuditTileWidth is the number of hashes, or rows, of a full tile.
const AuditTileWidth = 256

// Rows returns the numbers of the first and the last row of a tile of level 0, as
// "257-512".
func (t AuditTile) Rows() string {
	first := t.Index * AuditTileWidth
	return fmt.Sprintf("%d-%d", first+1, first+int64(t.Width))
}
