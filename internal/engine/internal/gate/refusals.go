package gate

import (
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
)

// Limits of refused operations per principal. Each refusal writes a row to the audit log. Without limits, a principal
// without rights could fill the disk.
const (
	refusalsPerSecond = 200
	refusalsAtOnce    = 2000 // twice the maximum number of items in a batch
)

// refusedMeter limits the audit rows that a principal without rights can cause: refused operations, and questions about
// its own access.
type refusedMeter = quota.Meter[refusedParty]

// refusedParty identifies the principal that a limit applies to. The scoped credentials of a principal have a limit of
// their own. Thus a workload with such a credential cannot use up the limit of the principal.
type refusedParty struct {
	principal keyserver.PrincipalRef
	scoped    bool
}

func partyOf(by keyserver.Caller) refusedParty { return refusedParty{by.Acting(), len(by.Scope) > 0} }

// newRefusals returns a meter with the limits above.
func newRefusals(clock func() time.Time) *refusedMeter {
	return quota.NewMeter[refusedParty](refusalsPerSecond, refusalsAtOnce, clock)
}

// CountRefusal counts one refused operation of the caller.
func (g *Gate) CountRefusal(by keyserver.Caller) { g.refusals.Count(partyOf(by), 1) }

// Restrained returns OVERLOADED if the caller's principal has reached the limit of refused operations. This is not a
// decision about an operation, so it writes no audit row.
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
