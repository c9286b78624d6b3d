package peer

import (
	"slices"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/peer/peerpb"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// lastMicros is the last time in RFC 3339, the end of the year 9999, in microseconds since 1970.
const lastMicros = 253_402_300_799_999_999

// lifeTo converts the life cycle of a key for a peer. It omits the other keys of the lineage, which no peer learns.
func lifeTo(m keyserver.KeyMetadata) *peerpb.KeyLife {
	return &peerpb.KeyLife{
		State: string(m.Life.State), Lineage: m.Life.Lineage.Uint64(), Generation: bytesOf(m.Life.Generation), Exportable: m.Life.Exportable,
		CreatedAt: keyserver.Micros(m.CreatedAt), StateAt: keyserver.Micros(m.Life.StateAt), DestroyAt: keyserver.Micros(m.Life.DestroyAt),
		Uses: m.Uses, LastUsedAt: keyserver.Micros(m.LastUsedAt),
	}
}

// lifeFrom writes a life cycle from a peer to m. It reports whether the life cycle is valid. If the life cycle is
// missing, it is valid and m does not change.
func lifeFrom(in *peerpb.KeyLife, m *keyserver.KeyMetadata) bool {
	if in == nil {
		return true
	}
	m.Life = keyserver.KeyLife{
		State: keyserver.KeyState(in.GetState()), Lineage: values.IDFromUint64(in.GetLineage()), Generation: int(in.GetGeneration()),
		Exportable: in.GetExportable(), StateAt: keyserver.FromMicros(in.GetStateAt()), DestroyAt: keyserver.FromMicros(in.GetDestroyAt()),
	}
	m.CreatedAt, m.Uses, m.LastUsedAt = keyserver.FromMicros(in.GetCreatedAt()), in.GetUses(), keyserver.FromMicros(in.GetLastUsedAt())
	for _, micros := range []int64{in.GetCreatedAt(), in.GetStateAt(), in.GetDestroyAt(), in.GetLastUsedAt()} {
		if micros < 0 || micros > lastMicros {
			return false
		}
	}
	return in.GetUses() >= 0 && slices.Contains(keyserver.KeyStates, m.Life.State) && !m.Life.Lineage.IsZero() && m.Life.Generation >= 1 && in.GetCreatedAt() > 0
}
