package access

import (
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Exposed decides whether a principal of this key server may send requests to a peer, which then learns about the
// principal. It has no side effects. Rules (contract 14.1): the principal, or one of its groups, needs a row that
// exposes it to that peer. A row of the principal itself takes precedence, so that one member of an exposed group can
// be restricted. Without a row the principal is not exposed. A restriction of a group has no effect.
func Exposed(rows []keyserver.PrincipalTrust, who Subject, peer keyserver.SystemID) Verdict {
	if own, ok := trustOf(rows, who.Principal.ID, peer); ok {
		if own.Flag == keyserver.Expose {
			return Verdict{Allowed: true}
		}
		return Verdict{Why: "is restricted for that peer"}
	}
	for _, group := range who.Groups {
		if row, ok := trustOf(rows, group.ID, peer); ok && row.Flag == keyserver.Expose {
			return Verdict{Allowed: true}
		}
	}
	return Verdict{Why: "is not exposed to that peer, and neither is any of its groups"}
}

// Admitted decides whether this key server accepts a request of a peer for one of the peer's principals. It has no side
// effects. Call it for that principal, for the principal that acts for it, and for the groups that the peer reports. A
// row that restricts the principal for that peer denies the request. Otherwise the key's ACL decides.
func Admitted(rows []keyserver.PrincipalTrust, foreign keyserver.PrincipalRef) Verdict {
	if row, ok := trustOf(rows, foreign.ID, foreign.System); ok && row.Flag == keyserver.Restrict {
		return Verdict{Why: "a principal trust restricts the principal, its delegate or one of its groups on this key server"}
	}
	return Verdict{Allowed: true}
}

// LookupFields returns the fields of a local principal that a peer receives when it looks up the principal by id. It has no
// side effects. The peer always learns that the principal exists, its type, and whether it is disabled (contract 9.5).
// Otherwise the peer would end the principal's ACL entries on its keys. If a row restricts the principal for that peer,
// the id replaces the name. Roles, groups, identity and other flags are never sent.
func LookupFields(rows []keyserver.PrincipalTrust, p keyserver.Principal, peer keyserver.SystemID) keyserver.Principal {
	out := keyserver.Principal{
		ID: p.ID, System: p.System, Type: p.Type, Name: p.Name, Flags: p.Flags & keyserver.FlagEnable,
		Roles: []keyserver.ID{}, Groups: []keyserver.ID{},
	}
	if own, ok := trustOf(rows, p.ID, peer); ok && own.Flag == keyserver.Restrict {
		out.Name = p.ID.Hex()
	}
	return out
}

func trustOf(rows []keyserver.PrincipalTrust, principal keyserver.ID, peer keyserver.SystemID) (keyserver.PrincipalTrust, bool) {
	i := slices.IndexFunc(rows, func(t keyserver.PrincipalTrust) bool { return t.Principal == principal && t.Server == peer })
	if i < 0 {
		return keyserver.PrincipalTrust{}, false
	}
	return rows[i], true
}
