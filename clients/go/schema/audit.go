package schema

import (
	"time"
)

// AuditQuery selects audit rows. An omitted field does not limit the selection.
type AuditQuery struct {
	Reason      string     `query:"reason" limit:"1..64" doc:"Reason code, for instance aclDenied."`
	PrincipalID *DecimalID `query:"principalId" names:"principal" doc:"Principal of the caller, in decimal."`
	Operation   string     `query:"operation" limit:"1..64" doc:"Operation, for instance hmacData."`
	Outcome     *string    `query:"outcome" enum:"AuditOutcome" doc:"Outcome of the operation."`
	Object      string     `query:"object" limit:"1..4096" doc:"Object of the operation, as the entries show it; compared exactly."`
	Address     IPAddress  `query:"address" doc:"IP address of the client, without a port."`
	Session     *HexID     `query:"session" names:"-" doc:"Public id of the caller's session, as the entries show it; 16 hexadecimal digits."`
	Since       time.Time  `query:"since" doc:"Return rows at or after this RFC 3339 time."`
	Until       time.Time  `query:"until" doc:"Return rows before this RFC 3339 time."`
	Order       *string    `query:"order" enum:"SortOrder" doc:"asc (default): oldest row first. desc: newest row first."`
	Cursor      int64      `query:"cursor" limit:"0..9007199254740992" doc:"Value of next from the previous page in the same order."`
	Limit       *int       `query:"limit" limit:"1..1000" doc:"Maximum number of rows in a page; default 100."`
}

// AuditEntry is one row of the audit log.
type AuditEntry struct {
	Seq              int64      `json:"seq" doc:"Position in the audit log, over all chains."`
	Time             time.Time  `json:"time"`
	Operation        string     `json:"operation" doc:"Key of the operation from GET /api/operations, or login or logout."`
	Outcome          string     `json:"outcome" enum:"AuditOutcome"`
	Reason           string     `json:"reason" doc:"Reason code; empty if the operation was allowed."`
	PrincipalID      DecimalID  `json:"principalId" doc:"Principal of the caller; 0 if it is unknown."`
	SystemID         SystemID   `json:"systemId" doc:"System id of the key server that owns principalId."`
	Object           string     `json:"object" doc:"Object of the operation; empty if the operation has none."`
	SessionKind      string     `json:"sessionKind" doc:"Kind of the session. Without a session: how the request was authenticated, for instance peer or internal."`
	RequestID        string     `json:"requestId"`
	Filename         string     `json:"filename,omitzero" doc:"Purpose of the key, from the request to authorize its use. For a backup: its name."`
	Address          string     `json:"address" doc:"IP address of the client; empty if the service acted for itself."`
	Session          *HexID     `json:"session" doc:"Public id of the caller's session; null if there is none."`
	For              string     `json:"for" doc:"Purpose that the caller gave in the header X-Keyserver-For. The service does not check it."`
	Count            int64      `json:"count" doc:"Number of identical events. Refused logins with one name and address within a minute share one row."`
	Approval         *HexID     `json:"approval" doc:"Approval that was used for the operation; null if none was needed."`
	ActorPrincipalID *DecimalID `json:"actorPrincipalId,omitzero" doc:"Principal that acted, if principalId is its delegator."`
	ActorSystemID    *SystemID  `json:"actorSystemId,omitzero" doc:"System id of the key server that owns actorPrincipalId."`
	Chain            int64      `json:"chain" doc:"Chain of the row. Each writer has one chain."`
	Position         int64      `json:"position" doc:"Position of the row in its chain, from 1."`
	Hash             Base64     `json:"hash" doc:"Hash of the row and of previousHash."`
	PreviousHash     Base64     `json:"previousHash" doc:"Hash of the previous row in the chain; zero in the first row."`
}

// AuditPage is one page of the audit log, in the requested order.
type AuditPage struct {
	Entries []AuditEntry `json:"entries"`
	Next    *int64       `json:"next" doc:"Cursor of the next page; null on the last page."`
	// ArchivedBefore shows that older rows exist outside the database.
	ArchivedBefore *int64 `json:"archivedBefore" doc:"First row in the database. Older rows are only in the audit archive, and the query does not include them. Null if the database has all rows."`
}
