package gate

import (
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
)

// Limits of refused operations per principal. Each refusal is a durable row of the audit log, so
// without limits a principal without rights could fill the disk.
const (
	refusalsPerSecond = 200
	refusalsAtOnce    = 2000 // two batches
)

// refusedMeter limits the audit rows that a principal can cause without any right: refused operations,
// and questions about its own access.
type refusedMeter = quota.Meter[refusedParty]

// refusedParty identifies the holder of a limit. The scoped credentials of a principal have a separate limit, so that a
// workload with such a credential cannot use up the limit of the principal.
type refusedParty struct {
	principal keyserver.PrincipalRef
	scoped    bool
}

func partyOf(by keyserver.Caller) refusedParty { return refusedParty{by.Acting(), len(by.Scope) > 0} }

// newRefusals returns a meter with the limits of a key server.
func newRefusals(clock func() time.Time) *refusedMeter {
	return quota.NewMeter[refusedParty](refusalsPerSecond, refusalsAtOnce, clock)
}

// CountRefusal counts an operation of the caller as a refusal.
func (g *Gate) CountRefusal(by keyserver.Caller) { g.refusals.Count(partyOf(by), 1) }

// Restrained returns OVERLOADED if the principal of the caller has used up its limit of refusals.
// This is not a decision about an operation, so it has no audit row.
func (g *Gate) Restrained(by keyserver.Caller) error { return g.restrained(by, 1) }

// restrained is Restrained for n operations.
func (g *Gate) restrained(by keyserver.Caller, n int) error {
	wait := g.refusals.Wait(partyOf(by), n)
	if wait == 0 || g.view != nil {
		return nil
	}
	return fault.Temporary(fault.Overloaded, fault.ScopeSession, wait,
		"too many operations of the principal were refused (limit %d, then %d per second); stop requests that are refused, and try again", refusalsAtOnce, refusalsPerSecond)
}
