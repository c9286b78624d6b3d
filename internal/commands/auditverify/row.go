package auditverify

import (
	"errors"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

var (
	errRow = errors.New("hash and previousHash must have 32 bytes each, and outcome be allowed, refused or failed")
	// The hash does not cover further digits, so a row with more digits would be verified although it was changed.
	errRowTime = errors.New("time must have at most six digits of a second")
)

// Row returns the row that an entry of GET /api/audit describes, so that a client can compute its hash.
func Row(e *schema.AuditEntry) (keyserver.AuditEntry, error) {
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
