package schema

import (
	"errors"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// AuditQuery selects audit rows. A field that is left out selects all.
type AuditQuery struct {
	Reason      string     `query:"reason" limit:"1..64" doc:"Coded cause, for instance aclDenied."`
	PrincipalID *DecimalID `query:"principalId" names:"principal" doc:"Who asked, in decimal."`
	Operation   string     `query:"operation" limit:"1..64" doc:"For instance hmacData."`
	Outcome     *string    `query:"outcome" enum:"allowed,refused,failed" doc:"How it ended."`
	Object      string     `query:"object" limit:"1..4096" doc:"What it was done to, as the entries have it, compared exactly."`
	Address     IPAddress  `query:"address" doc:"Where it came from: the client's address, without a port."`
	Session     *HexID     `query:"session" names:"-" doc:"Public id of the caller's session, as the entries have it; 16 hexadecimal digits."`
	Since       time.Time  `query:"since" doc:"Rows at or after this RFC 3339 time."`
	Until       time.Time  `query:"until" doc:"Rows before this RFC 3339 time."`
	Order       *string    `query:"order" enum:"asc,desc" doc:"asc: oldest row first, as when left out; desc: newest first."`
	Cursor      int64      `query:"cursor" limit:"0..9007199254740992" doc:"The next of an earlier page in the same order."`
	Limit       *int       `query:"limit" limit:"1..1000" doc:"Rows in a page, 100 when left out."`
}

// AuditEntry is one row of the audit log.
type AuditEntry struct {
	Seq              int64      `json:"seq" doc:"Place in the trail, over all chains."`
	Time             time.Time  `json:"time"`
	Operation        string     `json:"operation" doc:"As GET /api/operations names it for the audit trail; also login and logout."`
	Outcome          string     `json:"outcome" enum:"allowed,refused,failed"`
	Reason           string     `json:"reason" doc:"Coded cause; empty where the operation was allowed."`
	PrincipalID      DecimalID  `json:"principalId" doc:"Who asked; 0 where nobody was recognised."`
	SystemID         SystemID   `json:"systemId" doc:"The key server of principalId."`
	Object           string     `json:"object" doc:"What it was done to; empty where the operation has no object."`
	SessionKind      string     `json:"sessionKind" doc:"Kind of the session, or of what stood in its place."`
	RequestID        string     `json:"requestId"`
	Filename         string     `json:"filename,omitzero" doc:"What authorize was told the key is for; of a backup, its name."`
	Address          string     `json:"address" doc:"Of the client; empty where the service acted for itself."`
	Session          *HexID     `json:"session" doc:"Public id of the caller's session; null where there is none."`
	For              string     `json:"for" doc:"What the caller says that it acted for (header X-Keyserver-For); nobody checks it."`
	Count            int64      `json:"count" doc:"How many times the same happened; refused logins of one name and address within a minute are one row."`
	Approval         *HexID     `json:"approval" doc:"The approval under which it was done; null where none was asked for."`
	ActorPrincipalID *DecimalID `json:"actorPrincipalId,omitzero" doc:"Who really acted, where principalId is a delegator."`
	ActorSystemID    *SystemID  `json:"actorSystemId,omitzero" doc:"The key server of actorPrincipalId."`
	Chain            int64      `json:"chain" doc:"The chain that the row belongs to; one per writer."`
	Position         int64      `json:"position" doc:"The row's place in its chain, from 1 on."`
	Hash             Base64     `json:"hash" doc:"Covers the row and previousHash."`
	PreviousHash     Base64     `json:"previousHash" doc:"Hash of the row before it in its chain; zero in the first."`
}

var (
	errRow = errors.New("hash and previousHash must have 32 bytes each, and outcome be allowed, refused or failed")
	// Further digits are in no hash, so a row with added digits would pass verification.
	errRowTime = errors.New("time must have at most six digits of a second")
)

// Row returns the row that the entry describes, so that a client can compute its hash.
func (e *AuditEntry) Row() (keyserver.AuditEntry, error) {
	row := keyserver.AuditEntry{
		Seq: e.Seq, Time: e.Time, Operation: e.Operation, Outcome: keyserver.Outcome(e.Outcome), Reason: e.Reason,
		Principal: keyserver.PrincipalRef{System: keyserver.SystemID(e.SystemID), ID: keyserver.ID(e.PrincipalID)},
		Object:    e.Object, Kind: keyserver.SessionKind(e.SessionKind), RequestID: e.RequestID, Filename: e.Filename,
		Address: e.Address, For: e.For, Count: e.Count, Chain: e.Chain, Position: e.Position,
	}
	if e.Session != nil {
		row.Session = keyserver.ID(*e.Session)
	}
	if e.Approval != nil {
		row.Approval = keyserver.ID(*e.Approval)
	}
	if e.ActorPrincipalID != nil && e.ActorSystemID != nil {
		row.Actor = keyserver.PrincipalRef{System: keyserver.SystemID(*e.ActorSystemID), ID: keyserver.ID(*e.ActorPrincipalID)}
	}
	known := row.Outcome == keyserver.Allowed || row.Outcome == keyserver.Refused || row.Outcome == keyserver.Failed
	if !known || len(e.Hash) != len(row.Hash) || len(e.PreviousHash) != len(row.Previous) {
		return keyserver.AuditEntry{}, errRow
	}
	if !row.Time.Equal(row.Time.Truncate(time.Microsecond)) {
		return keyserver.AuditEntry{}, errRowTime
	}
	copy(row.Hash[:], e.Hash)
	copy(row.Previous[:], e.PreviousHash)
	return row, nil
}

// AuditPage is one page of the audit log, in the requested order.
type AuditPage struct {
	Entries []AuditEntry `json:"entries"`
	Next    *int64       `json:"next" doc:"The cursor of the next page, or null when this is the last."`
	// ArchivedBefore shows that older rows exist outside the database.
	ArchivedBefore *int64 `json:"archivedBefore" doc:"The first row that the database has: those before it are in the audit archive only, and are not looked at. Null where it has all."`
}
