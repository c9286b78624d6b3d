package operations

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func grantACL(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.ACLChangeRequest) (schema.ACLResponse, error) {
	r, err := ops.GrantACL(ctx, by, aclChangeOf(in))
	return aclResponseOf(r), err
}

func amendACL(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.ACLChangeRequest) (schema.ACLResponse, error) {
	r, err := ops.AmendACL(ctx, by, aclChangeOf(in))
	return aclResponseOf(r), err
}

func revokeACL(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.ACLRevokeRequest) (schema.ACLResponse, error) {
	principal := keyserver.PrincipalRef{System: keyserver.SystemID(in.SystemID), ID: keyserver.ID(in.PrincipalID)}
	r, err := ops.RevokeACL(ctx, by, keyserver.ACLRevocation{Link: keyserver.HiddenLink(in.TTag), Principal: principal})
	return aclResponseOf(r), err
}

func getACL(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.KeyRequest) (schema.ACLResponse, error) {
	r, err := ops.ACL(ctx, by, keyserver.HiddenLink(in.TTag))
	return aclResponseOf(r), err
}

func aclChangeOf(in schema.ACLChangeRequest) keyserver.ACLChange {
	change := keyserver.ACLChange{
		Link:      keyserver.HiddenLink(in.TTag),
		Principal: keyserver.PrincipalRef{System: keyserver.SystemID(in.SystemID), ID: keyserver.ID(in.PrincipalID)},
		Rights:    keyserver.Rights(in.Rights),
		MaxUsage:  keyserver.NoUsageLimit,
	}
	if in.MaxUsage != nil {
		change.MaxUsage = *in.MaxUsage
	}
	if in.StartTime != nil {
		change.Start = keyserver.Stamp(*in.StartTime)
	}
	if in.EndTime != nil {
		change.End = keyserver.Stamp(*in.EndTime)
	}
	return change
}

func aclResponseOf(r verified.ACLResult) schema.ACLResponse {
	out := schema.ACLResponse{
		Operation: r.Operation, Verified: r.Verified, ACL: aclInfoOf(r.ACL), Verdict: schema.Verdict{Detail: r.Detail},
	}
	if r.Requested != nil {
		rights, names := schema.Rights(*r.Requested), r.Requested.Names()
		out.RequestedRights, out.RequestedRightNames = &rights, &names
	}
	out.Entry = optional(r.Entry, aclEntryOf)
	return out
}

func aclInfoOf(a keyserver.ACL) schema.ACLInfo {
	system, _, _ := a.Link.Split()
	return schema.ACLInfo{
		ACLID:      schema.Base64ID(a.ID),
		HiddenLink: schema.ACLLink{SystemID: schema.SystemID(system), TTag: schema.HiddenLink(a.Link)},
		Expired:    a.Expired, EntryCount: len(a.Entries), Entries: Convert(a.Entries, aclEntryOf),
	}
}

func aclEntryOf(e keyserver.ACLEntry) schema.ACLEntry {
	return schema.ACLEntry{
		PrincipalID: schema.DecimalID(e.Principal.ID), SystemID: schema.SystemID(e.Principal.System),
		ACLEntryID: schema.Base64ID(e.ID), ACLID: schema.Base64ID(e.ACL),
		Rights: schema.Rights(e.Rights), RightNames: e.Rights.Names(), MaxUsage: e.MaxUsage, UserRight: e.UserRight,
		StartTime: schema.Stamp(e.Start), StartTimeUnset: e.Start.IsUnset(),
		EndTime: schema.Stamp(e.End), EndTimeUnset: e.End.IsUnset(),
	}
}
