package trust

import (
	"github.com/keyserver-operator/keyserver-operator/internal/engine/ca"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
)

// Trust has the operations that decide which certificates and key servers are trusted. It is safe
// for concurrent use.
type Trust struct {
	*gate.Gate
	Self Self
	cas  *ca.Manager
}

// New returns the operations that decide on trust.
func New(g *gate.Gate, cas *ca.Manager, self Self) *Trust {
	return &Trust{Gate: g, Self: self, cas: cas}
}
