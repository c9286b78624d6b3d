package httpapi

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/operations"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// defaultAuditPage is the number of rows of a page if the request has no limit.
const defaultAuditPage = 100

// newestFirst is the value of order that sorts the newest rows first.
const newestFirst = "desc"

func readAudit(a *API, ctx context.Context, c call, in schema.AuditQuery) (schema.AuditPage, error) {
	filter := keyserver.AuditFilter{
		Reason: in.Reason, Operation: in.Operation, Object: in.Object, Address: string(in.Address), Since: in.Since, Until: in.Until,
		Newest: in.Order != nil && *in.Order == newestFirst, After: in.Cursor, Limit: defaultAuditPage,
	}
	if in.Outcome != nil {
		filter.Outcome = keyserver.Outcome(*in.Outcome)
	}
	if in.Session != nil {
		id := keyserver.ID(*in.Session)
		filter.Session = &id
	}
	if in.PrincipalID != nil {
		id := keyserver.ID(*in.PrincipalID)
		filter.Principal = &id
	}
	if in.Limit != nil {
		filter.Limit = *in.Limit
	}
	page, err := a.Operations.Audit(ctx, c.by, filter)
	if err != nil {
		return schema.AuditPage{}, err
	}
	out := schema.AuditPage{Entries: operations.Convert(page.Entries, AuditEntryOf)}
	if page.Next != 0 {
		out.Next = &page.Next
	}
	if page.ArchivedBefore != 0 {
		out.ArchivedBefore = &page.ArchivedBefore
	}
	return out, nil
}

// AuditEntryOf converts an audit row to the format of the response of GET /api/audit.
func AuditEntryOf(e keyserver.AuditEntry) schema.AuditEntry {
	out := schema.AuditEntry{
		Seq: e.Seq, Time: e.Time.UTC(), Operation: e.Operation, Outcome: string(e.Outcome), Reason: e.Reason,
		PrincipalID: schema.DecimalID(e.Principal.ID), SystemID: schema.SystemID(e.Principal.System),
		Object: e.Object, SessionKind: string(e.Kind), RequestID: e.RequestID, Filename: e.Filename,
		Address: e.Address, For: e.For, Count: e.Times(),
		Chain: e.Chain, Position: e.Position, Hash: e.Hash[:], PreviousHash: e.Previous[:],
	}
	if !e.Session.IsZero() {
		id := schema.HexID(e.Session)
		out.Session = &id
	}
	if !e.Approval.IsZero() {
		id := schema.HexID(e.Approval)
		out.Approval = &id
	}
	if e.Actor != (keyserver.PrincipalRef{}) {
		id, system := schema.DecimalID(e.Actor.ID), schema.SystemID(e.Actor.System)
		out.ActorPrincipalID, out.ActorSystemID = &id, &system
	}
	return out
}
