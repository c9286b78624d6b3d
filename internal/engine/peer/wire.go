package peer

import (
	"math"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/peer/peerpb"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func refTo(r keyserver.PrincipalRef) *peerpb.Ref {
	return &peerpb.Ref{System: uint32(r.System), Id: r.ID.Uint64()}
}

func refFrom(r *peerpb.Ref) keyserver.PrincipalRef {
	return keyserver.PrincipalRef{System: keyserver.SystemID(r.GetSystem()), ID: values.IDFromUint64(r.GetId())}
}

func idsTo(ids []keyserver.ID) []uint64 {
	out := make([]uint64, len(ids))
	for i, id := range ids {
		out[i] = id.Uint64()
	}
	return out
}

func idsFrom(ids []uint64) []keyserver.ID {
	out := make([]keyserver.ID, len(ids))
	for i, id := range ids {
		out[i] = values.IDFromUint64(id)
	}
	return out
}

func principalTo(p keyserver.Principal) *peerpb.Principal {
	return &peerpb.Principal{
		Ref: refTo(p.Ref()), Type: string(p.Type), Name: p.Name, Flags: uint32(p.Flags), Roles: idsTo(p.Roles), Groups: idsTo(p.Groups),
	}
}

func principalFrom(p *peerpb.Principal) keyserver.Principal {
	ref := refFrom(p.GetRef())
	return keyserver.Principal{
		ID: ref.ID, System: ref.System, Type: keyserver.PrincipalType(p.GetType()), Name: p.GetName(), Flags: keyserver.Flags(p.GetFlags()),
		Roles: idsFrom(p.GetRoles()), Groups: idsFrom(p.GetGroups()),
	}
}

func aclTo(a keyserver.ACL) *peerpb.ACLResponse {
	out := &peerpb.ACLResponse{Acl: a.ID.Uint64(), Expired: a.Expired, Entries: make([]*peerpb.ACLEntry, len(a.Entries))}
	for i, e := range a.Entries {
		out.Entries[i] = &peerpb.ACLEntry{
			Id: e.ID.Uint64(), Principal: refTo(e.Principal), Rights: uint32(e.Rights), MaxUsage: e.MaxUsage, Used: e.Used,
			UserRight: e.UserRight, Start: e.Start[:], End: e.End[:],
		}
	}
	return out
}

// aclFrom converts an ACL from a peer. It reports false if a time is invalid.
func aclFrom(in *peerpb.ACLResponse, link keyserver.HiddenLink) (keyserver.ACL, bool) {
	acl := keyserver.ACL{
		ID: values.IDFromUint64(in.GetAcl()), Link: link, Expired: in.GetExpired(), Entries: make([]keyserver.ACLEntry, len(in.GetEntries())),
	}
	for i, e := range in.GetEntries() {
		start, ok := stampFrom(e.GetStart())
		end, also := stampFrom(e.GetEnd())
		if !ok || !also {
			return keyserver.ACL{}, false
		}
		acl.Entries[i] = keyserver.ACLEntry{
			ID: values.IDFromUint64(e.GetId()), ACL: acl.ID, Principal: refFrom(e.GetPrincipal()), Rights: keyserver.Rights(e.GetRights()),
			MaxUsage: e.GetMaxUsage(), Used: e.GetUsed(), UserRight: e.GetUserRight(), Start: start, End: end,
		}
	}
	return acl, true
}

// stampFrom converts a time from a peer. Empty bytes mean unset.
func stampFrom(b []byte) (keyserver.Stamp, bool) {
	var s keyserver.Stamp
	if len(b) == 0 {
		return s, true
	}
	return s, copy(s[:], b) == len(b) && len(b) == len(s)
}

func changeTo(kind peerpb.ChangeACLRequest_Kind, c *peerpb.Call, change keyserver.ACLChange) *peerpb.ChangeACLRequest {
	return &peerpb.ChangeACLRequest{
		Call: c, Link: []byte(change.Link), Kind: kind, Principal: refTo(change.Principal),
		Rights: uint32(change.Rights), MaxUsage: change.MaxUsage, Start: change.Start[:], End: change.End[:],
	}
}

// bytesOf converts a length or a generation for a message. A value out of range becomes 0.
func bytesOf(n int) uint32 {
	if n < 0 || int64(n) > math.MaxUint32 {
		return 0
	}
	return uint32(n)
}
