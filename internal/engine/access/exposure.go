package access

import (
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Exposed decides, where a principal of this key server asks a peer for
// something, whether the peer may be told about it. It is pure. Rules (contract
// 14.1): the principal, or a group that it is in, needs a row that
// exposes it to that peer; a row of the principal itself comes first, so that
// one member can be held back from a group that is exposed; without any row it
// is not exposed. A group's restriction gives nothing and takes nothing away.
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
	return Verdict{Why: "is not exposed to that peer, nor is a group it is in"}
}

// Admitted decides, where a peer asks for one of its principals, or one of them
// acts for another, whether this key server listens at all. It is asked of each of
// them, and of the groups that the peer says they are in. It is pure. A row
// that restricts that principal for that peer refuses it; otherwise the key's
// access control list decides.
func Admitted(rows []keyserver.PrincipalTrust, foreign keyserver.PrincipalRef) Verdict {
	if row, ok := trustOf(rows, foreign.ID, foreign.System); ok && row.Flag == keyserver.Restrict {
		return Verdict{Why: "the peer's principal, or a group of the peer that it is in, is restricted here"}
	}
	return Verdict{Allowed: true}
}

// Told is what a peer learns of a principal of this key server that it looks up
// by its id. It is pure. That there is the principal, of which type, and whether
// it is disabled, the lookup is about (contract 9.5): a
// principal that was left out would have its entries there closed. Of one that a
// row restricts for that peer, the id stands for the name. What the principal may
// do here, its roles, groups, identity and other flags, stays here.
func Told(rows []keyserver.PrincipalTrust, p keyserver.Principal, peer keyserver.SystemID) keyserver.Principal {
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
